"""What tests of the simulator share: interpreted kernels, and PyTorch's seed.

Where there is no GPU, Triton interprets our kernels for it: it decides so when it is first imported.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """What a test draws from PyTorch's own generator does not depend on the tests before it."""
    torch.manual_seed(0)
