"""Pairwise distances between the clients of many runs, on the device that holds their updates.

As in `equifl._numerics.distances`: updates are centred, distances come from the Gram matrix, and those that lost
precision to cancellation are recomputed by direct difference. A round changes only the updates of a cohort, so
distances are kept and those of the cohort recomputed. The number of inaccurate ones is known on the device only. To
avoid a synchronisation a fixed number of them is recomputed there, and the count of the others is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from equifl.signals import Ints
from equifl.sim.engines.torch.transfers import to_device

_LOST = 1e-3  # of the sum of two squares: smaller results lost precision to cancellation
_AT_A_TIME = {"cpu": 2**20, "cuda": 2**26}  # numbers centred: within the caches, or a small part of the memory
_DIRECT = 2**22  # numbers that are subtracted at a time


@torch.no_grad()
def distances(updates: Tensor) -> Tensor:
    """(R, N, N) Euclidean distances between the rows of each of R matrices (R, N, d); rows of nan stay nan."""
    runs, clients, _ = updates.shape
    found = torch.full((runs, clients, clients), torch.nan, device=updates.device)
    if runs:
        renew(found, updates, range(runs), [np.arange(clients)] * runs)
    return found


@torch.no_grad()
def renew(
    pairwise: Tensor, updates: Tensor, runs: Sequence[int], reported: Sequence[Ints], *, wait: bool = True
) -> Tensor:
    """Update in `pairwise` (R, N, N), in place, the distances of the clients that reported in these runs.

    Returns:
        The number of inaccurate distances left, on the device: 0, unless `wait` is false on a GPU.
    """
    together = updates.is_cuda and len(runs) == len(updates) and len({len(ids) for ids in reported}) == 1
    if together:  # few large kernels suit a GPU, small ones the caches of a CPU
        return _renew(pairwise, updates, to_device(np.stack(reported), updates.device), wait)
    left = torch.zeros((), dtype=torch.int64, device=updates.device)
    for run, ids in zip(runs, reported, strict=True):
        one = slice(run, run + 1)
        left += _renew(pairwise[one], updates[one], to_device(ids[None], updates.device), wait)
    return left


def _renew(pairwise: Tensor, updates: Tensor, who: Tensor, wait: bool) -> Tensor:
    """As `renew`, for (R, k) clients, k of each run."""
    (runs, k), (_, n, d) = who.shape, updates.shape
    mine = updates if k == n else updates.gather(1, who.unsqueeze(2).expand(-1, -1, d))
    who = torch.arange(n, device=who.device).expand(runs, n) if k == n else who
    centre = mine.nanmean(dim=1, keepdim=True)
    gram = torch.zeros(runs, k, n, device=updates.device)
    squares = torch.zeros(runs, n, device=updates.device)
    for part in _columns(updates):
        centred = updates[:, :, part] - centre[:, :, part]
        own = centred if k == n else mine[:, :, part] - centre[:, :, part]
        gram += torch.bmm(own, centred.transpose(1, 2))
        squares += centred.square().sum(dim=2)
    own_column, own_columns = who.unsqueeze(2), who.unsqueeze(1).expand(-1, k, -1)
    sums = squares.gather(1, who).unsqueeze(2) + squares.unsqueeze(1)
    squared = (sums - 2 * gram).clamp_(min=0)
    among = squared.gather(2, own_columns)
    squared.scatter_(2, own_columns, torch.minimum(among, among.transpose(1, 2)))  # exactly symmetric
    squared.scatter_(2, own_column, 0 * squared.gather(2, own_column))  # to oneself 0, but nan stays nan
    lost = (squared <= _LOST * sums).scatter_(2, own_column, False)
    recompute = _recompute_all if wait or not updates.is_cuda else _recompute_some
    squared, left = recompute(squared, lost, mine, updates)
    found = torch.sqrt(squared)
    pairwise.scatter_(1, who.unsqueeze(2).expand(-1, -1, n), found)
    pairwise.scatter_(2, who.unsqueeze(1).expand(-1, n, -1), found.transpose(1, 2))
    return left


def _recompute_all(squared: Tensor, lost: Tensor, mine: Tensor, updates: Tensor) -> tuple[Tensor, Tensor]:
    """The squared distances, inaccurate ones recomputed by direct difference, some at a time; and 0 left."""
    places = torch.nonzero(lost.flatten())[:, 0]
    for some in torch.split(places, _room(updates)):
        squared.view(-1)[some] = _directly(squared, mine, updates, some)
    return squared, places.new_zeros(())


def _recompute_some(squared: Tensor, lost: Tensor, mine: Tensor, updates: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a fixed number of inaccurate ones, without synchronisation; and the number left."""
    so_far = lost.flatten().cumsum(0)
    first = torch.arange(1, _room(updates) + 1, device=lost.device)
    places = torch.searchsorted(so_far, first)  # past the end where there is none
    longer = torch.cat([squared.flatten(), squared.new_zeros(1)])
    longer[places] = _directly(squared, mine, updates, places.clamp(max=lost.numel() - 1))
    return longer[:-1].view_as(squared), (so_far[-1] - len(first)).clamp(min=0)


def _room(updates: Tensor) -> int:
    return max(1, _DIRECT // updates.shape[2])


def _directly(squared: Tensor, mine: Tensor, updates: Tensor, places: Tensor) -> Tensor:
    _, k, n = squared.shape
    run, row, other = places // (k * n), places // n % k, places % n
    return (mine[run, row] - updates[run, other]).square().sum(dim=1)


def _columns(updates: Tensor) -> Iterator[slice]:
    """Slices of columns, small enough to centre at a time."""
    runs, n, d = updates.shape
    step = max(1, _AT_A_TIME[updates.device.type] // (runs * n))
    for start in range(0, d, step):
        yield slice(start, start + step)
