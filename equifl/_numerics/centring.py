"""Updates minus their mean, in float32, read in parts, so that a file larger than the memory works too."""

from __future__ import annotations

import numpy as np

from equifl._numerics.threads import on_all_cores, tiles
from equifl.signals import Floats, Ints

_SHARE_BYTES = 2**26  # updates that one core looks through at a time


class CentredUpdates:
    """The rows `ids` of `updates`, numbered 0, 1, ... among themselves, less their mean, divided by `unit`.

    Args:
        updates: (N, d) in float16, float32 or float64.
        ids: the rows meant; None = all.
        copy_limit: bytes that a centred copy may take; beyond, parts are centred each time they are read.

    Attributes:
        mean: (d,) what is subtracted.
        unit: a power of two, which rounds nothing, so that neither squares nor their sums overflow or vanish.
        squares: (N,) the squared length of each row.

    >>> centred = CentredUpdates(np.array([[0.0, 0.0], [2.0, 6.0]]))
    >>> centred.part(slice(0, 2)).tolist(), centred.squares.tolist()
    ([[-1.0, -3.0], [1.0, 3.0]], [10.0, 10.0])
    """

    def __init__(self, updates: Floats, ids: Ints | None = None, *, copy_limit: int = 2**30) -> None:
        self._updates, self._ids = updates, ids
        self._wide = np.result_type(updates, np.float32)  # differences of float16 are taken in float32
        mean, largest = mean_and_reach(updates, ids)
        if largest and not 1e-30 < largest < 1e30:
            raise ValueError(f"updates: differ by {largest:.0e}; allowed: by 1e-30 to 1e30, or not at all")
        self.mean = mean.astype(self._wide)
        moderate = largest == 0 or 1e-9 < largest < 1e9
        self.unit = np.float32(1.0 if moderate else 2.0 ** np.floor(np.log2(largest)))
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
        """Updates that need not be among these, less the mean of these."""
        centred = np.subtract(updates, self.mean, dtype=self._wide)
        centred /= self.unit
        return centred.astype(np.float32, copy=False)

    def differences(self, updates: Floats, others: Ints) -> Floats:
        """Each of `updates` less one of the rows, without the rounding of the mean."""
        difference = np.subtract(updates, self.raw(others), dtype=self._wide)
        difference /= self.unit
        return difference

    def raw(self, rows: slice | Ints) -> Floats:
        """These rows as they were given."""
        return self._updates[rows] if self._ids is None else self._updates[self._ids[rows]]

    def _read(self, rows: slice | Ints, out: Floats | None = None) -> Floats:
        raw = self.raw(rows)
        if raw.dtype == np.float16:
            raw = out = widened(raw, out)
        centred = np.subtract(raw, self.mean, out=None if out is None else out[: len(raw)], dtype=self._wide)
        if self.unit != 1:
            centred /= self.unit
        return centred.astype(np.float32, copy=False)


def mean_and_reach(updates: Floats, ids: Ints | None) -> tuple[Floats, float]:
    """The mean row of `ids` (None = all), and the largest difference of any number from it.

    >>> mean_and_reach(np.array([[0.0, 5.0], [4.0, 5.0]]), None)
    (array([2., 5.]), 2.0)
    """
    n, d = len(updates) if ids is None else len(ids), updates.shape[1]
    share = max(1, _SHARE_BYTES // (4 * d))
    blocks = -(-n // share)  # the same whatever the number of cores, hence the sums too
    sums, most, least = np.zeros((blocks, d)), np.full((blocks, d), -np.inf), np.full((blocks, d), np.inf)

    def work(part: range) -> None:
        for block in part:
            for tile in tiles(range(block * share, min((block + 1) * share, n)), 4 * d):
                rows = updates[tile] if ids is None else updates[ids[tile]]
                rows = widened(rows) if rows.dtype == np.float16 else rows
                sums[block] += rows.sum(axis=0, dtype=np.float64)
                np.maximum(most[block], rows.max(axis=0), out=most[block])
                np.minimum(least[block], rows.min(axis=0), out=least[block])

    on_all_cores(work, blocks, _SHARE_BYTES)
    mean: Floats = sums.sum(axis=0) / n
    return mean, float(max((most.max(axis=0) - mean).max(), (mean - least.min(axis=0)).max()))


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
