"""Where there is no GPU, Triton interprets our kernels for it: it decides so when it is first imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
