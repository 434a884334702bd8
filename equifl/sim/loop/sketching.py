"""Sketches of many updates at once, on the device that holds them."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from equifl.sketch import CountSketch


@torch.no_grad()
def sketched(updates: Tensor, sketch: CountSketch) -> Tensor:
    """(M, length) of updates (M, d): what `sketch.rows` gives, to the last bit on a CPU.

    >>> sketched(torch.eye(3), CountSketch(length=4)).tolist() == CountSketch(length=4).rows(torch.eye(3)).tolist()
    True
    """
    sums = torch.zeros(2 * sketch.length, len(updates), dtype=torch.float64, device=updates.device)
    sums.index_add_(0, _places(sketch, updates.shape[1], updates.device), updates.T.double())
    return (sums[: sketch.length] - sums[sketch.length :]).T.float()


@lru_cache(maxsize=32)  # those of all seeds of a run
def _places(sketch: CountSketch, numbers: int, device: torch.device) -> Tensor:
    places: Tensor = sketch.places(torch.arange(numbers, device=device))
    return places
