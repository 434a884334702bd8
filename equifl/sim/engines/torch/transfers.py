"""Transfers between host and device with as few synchronisations as possible.

A GPU works asynchronously. A plain copy in either direction waits until all its work is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device, by an asynchronous transfer."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))  # others would be copied synchronously
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def to_host(*tensors: Tensor) -> list[NDArray[Any]]:
    """Copies of all tensors on the host, with one synchronisation.

    >>> [array.tolist() for array in to_host(torch.ones(2), torch.tensor(3))]
    [[1.0, 1.0], 3]
    """
    copies = [torch.empty_like(t, device="cpu", pin_memory=t.is_cuda).copy_(t, non_blocking=True) for t in tensors]
    if any(t.is_cuda for t in tensors):
        torch.cuda.current_stream().synchronize()
    return [copy.numpy() for copy in copies]
