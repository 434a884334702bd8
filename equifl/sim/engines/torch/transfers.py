"""Arrays to the device and back, so that neither side waits for the other more often than it must.

A GPU works on while Python goes on. A plain copy in either direction stops that: it waits for all that is under way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Under way to the device; nothing is waited for."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))  # of others PyTorch makes a copy that waits
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def to_host(*tensors: Tensor) -> list[NDArray[Any]]:
    """Copies of all these, after one wait.

    >>> [array.tolist() for array in to_host(torch.ones(2), torch.tensor(3))]
    [[1.0, 1.0], 3]
    """
    copies = [torch.empty_like(t, device="cpu", pin_memory=t.is_cuda).copy_(t, non_blocking=True) for t in tensors]
    if any(t.is_cuda for t in tensors):
        torch.cuda.current_stream().synchronize()
    return [copy.numpy() for copy in copies]
