"""Any module, on a CPU or a GPU, by PyTorch."""
