"""What runs on a GPU alone: Triton kernels and CUDA graphs."""
