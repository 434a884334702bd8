"""Updates minus their mean, in float32, read in parts, so that a file larger than the memory works too."""

from __future__ import annotations

import numpy as np

from equifl._numerics.bounds import Bounds, Survey, bounds_and_mean, sampled
from equifl._numerics.lengths import lengths
from equifl._numerics.threads import on_all_cores, tiles
from equifl.signals import Floats, Ints

_SHARE_BYTES = 2**26  # updates that one core looks through at a time


class CentredUpdates:
    """The rows `ids` of `updates`, numbered 0, 1, ... among themselves, bounded, less their mean.

    Args:
        updates: (N, d) in float16, float32 or float64.
        ids: the rows meant; None = all.
        bounds: how updates are read; None = as is found to be right for these.
        copy_limit: bytes that a centred copy may take; beyond, parts are centred each time they are read.

    Attributes:
        bounds: how updates are read before the mean is subtracted.
        mean: (d,) what is subtracted.
        squares: (N,) the squared length of each row.

    >>> centred = CentredUpdates(np.array([[0.0, 0.0], [2.0, 6.0]]))
    >>> centred.part(slice(0, 2)).tolist(), centred.squares.tolist()
    ([[-1.0, -3.0], [1.0, 3.0]], [10.0, 10.0])
    """

    def __init__(
        self, updates: Floats, ids: Ints | None = None, *, bounds: Bounds | None = None, copy_limit: int = 2**30
    ) -> None:
        self._updates, self._ids = updates, ids
        if bounds is None:
            self.bounds, mean = found_bounds(updates, ids)
        else:
            self.bounds, mean = bounds, survey(updates, ids, bounds).mean
        # Differences of float16 are taken in float32.
        self._wide = np.result_type(updates, np.float64 if self.bounds.wide else np.float32)
        self.mean = mean.astype(self._wide)
        n, d = self.shape
        self._copy = np.empty((n, d), np.float32) if 4 * n * d <= copy_limit else None
        self.squares = np.empty(n, np.float32)
        share = max(1, _SHARE_BYTES // (4 * d))
        on_all_cores(lambda part: self._prepare(part.start * share, part.stop * share), -(-n // share), _SHARE_BYTES)

    def _prepare(self, first: int, last: int) -> None:
        for tile in tiles(range(first, min(last, len(self))), 4 * self.shape[1]):
            centred = self._read(tile)
            self.squares[tile] = np.einsum("ij,ij->i", centred, centred)
            if self._copy is not None:
                self._copy[tile] = centred

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows, and how many numbers in each."""
        return len(self._updates) if self._ids is None else len(self._ids), self._updates.shape[1]

    def part(self, rows: slice | Ints, buffer: Floats | None = None) -> Floats:
        """These rows, centred; in `buffer` or elsewhere, and not to be written to."""
        return self._read(rows, buffer) if self._copy is None else self._copy[rows]

    def centre(self, updates: Floats) -> Floats:
        """Updates that need not be among these, but are bounded, less the mean of these."""
        return np.subtract(updates, self.mean, dtype=self._wide).astype(np.float32, copy=False)

    def differences(self, updates: Floats, others: Ints) -> Floats:
        """Each of `updates`, which are bounded, less one of the rows, without the rounding of the mean."""
        return np.subtract(updates, self.raw(others), dtype=self._wide)

    def raw(self, rows: slice | Ints) -> Floats:
        """These rows, bounded."""
        return self.bounds(self._updates[rows] if self._ids is None else self._updates[self._ids[rows]])

    def _read(self, rows: slice | Ints, out: Floats | None = None) -> Floats:
        raw = self.raw(rows)
        if raw.dtype == np.float16:
            raw = out = widened(raw, out)
        centred = np.subtract(raw, self.mean, out=None if out is None else out[: len(raw)], dtype=self._wide)
        return centred.astype(np.float32, copy=False)


def found_bounds(updates: Floats, ids: Ints | None) -> tuple[Bounds, Floats]:
    """How to read the rows `ids` (None = all), and their mean then."""
    sample = sampled(updates) if ids is None else updates[sampled(ids)]
    return bounds_and_mean(sample, lambda bounds, limit: survey(updates, ids, bounds, limit))


def survey(updates: Floats, ids: Ints | None, bounds: Bounds, limit: float = np.inf) -> Survey:
    """Mean, reach and largest lengths of the rows `ids` (None = all), as `bounds` reads them; `Bounds()`: no reach.

    >>> survey(np.array([[0.0, 5.0], [12.0, 5.0]]), None, Bounds(wide=True), limit=10.0)
    Survey(mean=array([6., 5.]), reach=6.0, plausible=5.0, longest=13.0)
    """
    far = bounds != Bounds()
    n, d = len(updates) if ids is None else len(ids), updates.shape[1]
    share = max(1, _SHARE_BYTES // (4 * d))
    blocks = -(-n // share)  # the same whatever the number of cores, hence the sums too
    sums, most, least = np.zeros((blocks, d)), np.full((blocks, d), -np.inf), np.full((blocks, d), np.inf)
    long = np.zeros(n)

    def work(part: range) -> None:
        for block in part:
            for tile in tiles(range(block * share, min((block + 1) * share, n)), 4 * d):
                rows = bounds(updates[tile] if ids is None else updates[ids[tile]])
                rows = widened(rows) if rows.dtype == np.float16 else rows
                with np.errstate(over="ignore", invalid="ignore"):  # then the reach is not finite
                    sums[block] += rows.sum(axis=0, dtype=np.float64)
                if far:
                    np.maximum(most[block], rows.max(axis=0), out=most[block])
                    np.minimum(least[block], rows.min(axis=0), out=least[block])
                long[tile] = lengths(rows)

    on_all_cores(work, blocks, _SHARE_BYTES)
    with np.errstate(over="ignore", invalid="ignore"):
        mean: Floats = sums.sum(axis=0) / n
        reach = float(max((most.max(axis=0) - mean).max(), (mean - least.min(axis=0)).max())) if far else np.nan
    return Survey(mean, reach, float(long[long <= limit].max(initial=0.0)), float(long.max(initial=0.0)))


def widened(half: Floats, out: Floats | None = None) -> Floats:
    """Finite numbers of float16 as float32: exactly what `astype` gives, in half the time.

    >>> widened(np.array([[-1.5, 6e-8]], np.float16)).tolist()
    [[-1.5, 5.960464477539063e-08]]
    """
    out = np.empty(half.shape, np.float32) if out is None else out[: len(half)]
    for tile in tiles(range(len(half)), 4 * half.shape[1]):
        bits = out[tile].view(np.int32)
        np.copyto(bits, half[tile].view(np.int16))
        bits <<= 13  # exponent and digits are in their places, and so is the sign, with copies of it in between
        bits &= -0x70000001
        out[tile] *= np.float32(2.0**112)  # what lies between the two types' zero of exponents
    return out
