"""The torch engine: any module, on a CPU or a GPU."""
