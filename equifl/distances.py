"""Distances between clients' updates: any rows of the N x N matrix when asked for, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from equifl.checks import integer
from equifl.signals import Floats, Ints, Signals
from equifl.threads import on_all_cores, tiles

GIBIBYTE = 2**30
_BLOCK_BYTES = 2**25  # rows computed at a time where the matrix is not kept
_BLOCK_ROWS = 16  # but no fewer than these: every block reads all updates
_CHUNK_BYTES = 2**24  # updates read and multiplied at a time
_SHARE_BYTES = 2**26  # updates that one core looks through at a time
_SMALL = 256  # up to here the matrix costs less than wondering whether it pays
_REFERENCES = 1024  # clients from whom the mean distance is measured

# Below this share of |u_i|^2 + |u_j|^2 the Gram formula has lost its digits in float32.
_CANCELLED = np.float32(1e-3)


class Distances:
    """Distances among the clients heard from, numbered 0, 1, ... among themselves.

    Those that `signals` brings are used as they are. Else they are computed from the updates: by rows as they
    are asked for, or all at once when more than half of the rows are wanted and the matrix fits `memory_limit`.
    """

    def __init__(self, signals: Signals, memory_limit: int = GIBIBYTE) -> None:
        self._memory_limit = integer("memory_limit", memory_limit, least=1)
        known = signals.knows_update
        self._count = int(known.sum())
        self._matrix: Floats | None = None
        self._largest: Floats | None = None
        self._kept_ids, self._kept = np.zeros(0, np.int64), np.zeros((0, self._count), np.float32)
        if signals.distances is not None:
            self._matrix = signals.distances if known.all() else signals.distances[np.ix_(known, known)]
            assert signals.farthest is not None
            self._largest = signals.farthest[known]
        elif signals.updates is not None and self._count:
            ids = None if known.all() else np.flatnonzero(known)
            self._updates = UpdateDistances(signals.updates, ids, copy_limit=self._memory_limit // 2)
            if self._count <= _SMALL:
                self._matrix = self._updates.matrix()
        else:
            self._matrix = np.zeros((0, 0))

    def __len__(self) -> int:
        return self._count

    def rows(self, ids: Ints) -> Floats:
        """(len(ids), count): from these clients to everybody; not to be written to."""
        table = self._matrix
        if table is None:
            if not self._keeps(ids):
                return self._updates.rows(ids)
            ids, table = np.searchsorted(self._kept_ids, ids), self._kept
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
            return table[ids[0] : ids[-1] + 1]  # neighbours: a view, no copy
        return table.take(ids, axis=0)

    def foresee(self, steps: Iterable[Ints]) -> None:
        """Whose rows will be asked for, step by step: those of many steps at once cost a fraction, and are kept."""
        if self._matrix is not None:
            return
        room = self._memory_limit // 2 // (4 * self._count)
        soon = np.zeros(0, np.int64)
        for step in steps:
            if not len(soon) and self._keeps(step):
                return
            if len(soon) + len(step) > room:
                break
            soon = np.append(soon, step)
        self._kept_ids, self._kept = soon[:0], np.zeros((0, self._count), np.float32)  # before more memory is taken
        if len(soon):
            self._kept_ids = np.unique(soon)
            self._kept = self._updates.rows(self._kept_ids)

    def _keeps(self, ids: Ints) -> bool:
        kept = self._kept_ids
        return len(kept) > 0 and bool((kept[np.searchsorted(kept[:-1], ids)] == ids).all())

    def reduce(self, ids: Ints, function: Callable[[Floats], Floats]) -> Floats:
        """(len(ids),) `function(rows)` of the rows of `ids`; it sees a few of them at a time."""
        fits = 4 * self._count**2 <= self._memory_limit
        if self._matrix is None and fits and len(ids) > self._count // 2:
            self._matrix = self._updates.matrix()
        out = np.empty(len(ids))
        row_bytes = 4 * self._count
        if self._matrix is None and not self._keeps(ids):
            block_bytes = min(max(_BLOCK_BYTES, _BLOCK_ROWS * row_bytes), self._memory_limit)
            step = max(1, block_bytes // max(1, row_bytes))
            for start in range(0, len(ids), step):
                block = self._updates.rows(ids[start : start + step])
                for tile in tiles(range(len(block)), row_bytes):
                    out[start : start + step][tile] = function(block[tile])
            return out

        def work(part: range) -> None:
            for tile in tiles(part, row_bytes):
                out[tile] = function(self.rows(ids[tile]))

        on_all_cores(work, len(ids), row_bytes)
        return out

    def farthest(self) -> Floats:
        """(count,) each client's largest distance, or without the matrix an upper bound of it."""
        if self._matrix is None:
            return self._updates.farthest()
        return self._matrix.max(axis=0, initial=0.0) if self._largest is None else self._largest

    def mean(self) -> float:
        """Over all pairs; with more than 1,024 clients over all pairs with 1,024 evenly spaced ones."""
        references = np.arange(0, self._count, -(-self._count // _REFERENCES) or 1)
        sums = self.reduce(references, lambda rows: rows.sum(axis=1, dtype=np.float64))
        return float(sums.sum()) / max(1, len(references) * self._count)


def centred_gram(signals: Signals, ids: Ints) -> Floats:
    """(len(ids), len(ids)) inner products <u_i - mean, u_j - mean>, with the mean over all clients heard from."""
    known = signals.knows_update
    if signals.distances is not None:
        squared = signals.distances[ids][:, known].astype(np.float64) ** 2  # to everyone heard from
        to_mean = squared.mean(axis=1)
        spread = np.mean(signals.distances[np.ix_(known, known)].astype(np.float64) ** 2) / 2
        among = signals.distances[np.ix_(ids, ids)].astype(np.float64) ** 2
        return (to_mean[:, None] + to_mean - among) / 2 - spread
    assert signals.updates is not None
    wide = np.result_type(signals.updates, np.float32)
    mean, _ = _mean_and_reach(signals.updates, None if known.all() else np.flatnonzero(known))
    centred = np.subtract(signals.updates[ids], mean.astype(wide), dtype=wide)
    unit = max(float(centred.max(initial=0)), -float(centred.min(initial=0)))
    if not unit < 1e30:
        raise ValueError(f"updates: differ by {unit:.0e}; allowed: up to 1e30")
    return centred @ centred.T


def _mean_and_reach(updates: Floats, ids: Ints | None) -> tuple[Floats, float]:
    """The mean row of `ids` (None = all), and the largest difference of any number from it, a few rows at a time."""
    n, d = len(updates) if ids is None else len(ids), updates.shape[1]
    step = max(1, _SHARE_BYTES // (4 * d))
    blocks = -(-n // step)  # the same whatever the number of cores, hence the sums too
    sums, most, least = np.empty((blocks, d)), np.empty((blocks, d)), np.empty((blocks, d))

    def work(part: range) -> None:
        for block in part:
            here = slice(block * step, (block + 1) * step)
            rows = updates[here] if ids is None else updates[ids[here]]
            rows.sum(axis=0, dtype=np.float64, out=sums[block])
            most[block], least[block] = rows.max(axis=0), rows.min(axis=0)

    on_all_cores(work, blocks, _SHARE_BYTES)
    mean: Floats = sums.sum(axis=0) / n
    reach = max((most.max(axis=0) - mean).max(), (mean - least.min(axis=0)).max())
    return mean, float(reach)


class UpdateDistances:
    """Euclidean distances between the rows of `updates`, in float32, without the N x N matrix.

    |u_i - u_j|^2 = q_i + q_j - 2 <u_i, u_j> is a matrix product, hence fast, but in float32 it loses all
    its digits when the updates share a large common part. So the mean is subtracted first (distances do
    not change), and the few pairs that are still close to each other are computed by their difference.

    Args:
        updates: (N, d); read a part at a time, so they may be in a memory-mapped file.
        ids: the rows meant, numbered 0, 1, ... among themselves; None = all.
        copy_limit: bytes that a centred copy may take; beyond, parts are centred each time they are read.

    >>> UpdateDistances(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).rows(np.array([0])).tolist()
    [[0.0, 5.0, 1.0]]
    """

    def __init__(self, updates: Floats, ids: Ints | None = None, *, copy_limit: int = GIBIBYTE) -> None:
        self._updates, self._ids = updates, ids
        self._wide = np.result_type(updates, np.float32)  # differences of float16 are taken in float32
        mean, largest = _mean_and_reach(updates, ids)
        if largest and not 1e-30 < largest < 1e30:
            raise ValueError(f"updates: differ by {largest:.0e}; allowed: by 1e-30 to 1e30, or not at all")
        self._mean = mean.astype(self._wide)
        # A power of two, which rounds nothing, so that neither the squares nor their sums overflow or vanish.
        moderate = largest == 0 or 1e-9 < largest < 1e9
        self._unit = np.float32(1.0 if moderate else 2.0 ** np.floor(np.log2(largest)))
        n, d = len(self), updates.shape[1]
        self._width = max(512, _CHUNK_BYTES // (4 * d))
        self._copy = np.empty((n, d), np.float32) if 4 * n * d <= copy_limit else None
        self._squares = np.empty(n, np.float32)
        share = max(1, _SHARE_BYTES // (4 * d))
        on_all_cores(lambda part: self._prepare(part.start * share, part.stop * share), -(-n // share), _SHARE_BYTES)

    def _prepare(self, first: int, last: int) -> None:
        step = max(1, self._width // 16)  # stays in a core's cache
        for start in range(first, min(last, len(self)), step):
            part = slice(start, min(start + step, last, len(self)))
            centred = self._read(part)
            self._squares[part] = np.einsum("ij,ij->i", centred, centred)
            if self._copy is not None:
                self._copy[part] = centred

    def __len__(self) -> int:
        return len(self._updates) if self._ids is None else len(self._ids)

    def rows(self, ids: Ints) -> Floats:
        """(len(ids), N): from these clients to everybody."""
        return self._block(ids, 0)

    def matrix(self, block: int = 256) -> Floats:
        """(N, N), symmetric to the last bit: the upper half is computed, the lower is its mirror image."""
        n = len(self)
        out = np.empty((n, n), np.float32)
        for start in range(0, n, block):
            stop = min(start + block, n)
            upper = self._block(np.arange(start, stop), start)
            out[start:stop, start:] = upper
            out[start:, start:stop] = upper.T
            corner = out[start:stop, start:stop]
            np.copyto(corner, np.minimum(corner, corner.T))
        return out

    def farthest(self) -> Floats:
        """(N,) upper bounds of each client's largest distance, by the triangle inequality through the mean."""
        radii = np.sqrt(self._squares)
        return self._unit * (radii + radii.max())

    def _raw(self, part: slice | Ints) -> Floats:
        return self._updates[part] if self._ids is None else self._updates[self._ids[part]]

    def _read(self, part: slice | Ints, out: Floats | None = None) -> Floats:
        """Centred updates, in float32."""
        raw = self._raw(part)
        if raw.dtype == np.float16:
            raw = out = widened(raw, out)
        centred = np.subtract(raw, self._mean, out=out, dtype=self._wide)
        if self._unit != 1:
            centred /= self._unit
        return centred.astype(np.float32, copy=False)

    def _block(self, ids: Ints, first: int) -> Floats:
        """From `ids` to the clients `first`, `first` + 1, ..., N - 1."""
        n, d = len(self), self._updates.shape[1]
        mine = (self._read(ids) if self._copy is None else self._copy[ids]) * np.float32(-2)
        buffer = np.empty((min(self._width, n) if self._copy is None else 0, d), np.float32)
        out = np.empty((len(ids), n - first), np.float32)
        for start in range(first, n, self._width):
            part = slice(start, min(start + self._width, n))
            others = self._read(part, buffer[: part.stop - start]) if self._copy is None else self._copy[part]
            squared = out[:, start - first : part.stop - first]
            np.matmul(mine, others.T, out=squared)
            for tile in tiles(range(len(ids)), 4 * squared.shape[1]):
                self._root(squared[tile], ids[tile], part)
        return out

    def _root(self, squared: Floats, ids: Ints, part: slice) -> None:
        """From -2 <u_i, u_j> to distances, in place; the close pairs by direct difference."""
        mine, others = self._squares[ids], self._squares[part]
        squared += mine[:, None] + others
        inside = np.flatnonzero((ids >= part.start) & (ids < part.stop))
        oneself = inside, ids[inside] - part.start
        squared[oneself] = np.inf  # else every row would have a close pair
        rows = np.flatnonzero(squared.min(axis=1) <= _CANCELLED * (mine + others.max()))
        close = np.flatnonzero(squared[rows] <= _CANCELLED * (mine[rows, None] + others))
        i, j = rows[close // len(others)], close % len(others)
        squared[i, j] = squared[oneself] = 0.0
        np.sqrt(squared, out=squared)
        if self._unit != 1:
            squared *= self._unit
        step = max(1, 2**20 // self._updates.shape[1])
        for a, b in ((i[at : at + step], j[at : at + step]) for at in range(0, len(i), step)):
            difference = np.subtract(self._raw(ids[a]), self._raw(b + part.start), dtype=self._wide)
            difference /= self._unit
            squared[a, b] = self._unit * np.sqrt(np.einsum("ij,ij->i", difference, difference))


def widened(half: Floats, out: Floats | None = None) -> Floats:
    """Finite numbers of float16 as float32: exactly what `astype` gives, in half the time.

    >>> widened(np.array([[-1.5, 6e-8]], np.float16)).tolist()
    [[-1.5, 5.960464477539063e-08]]
    """
    out = np.empty(half.shape, np.float32) if out is None else out
    for tile in tiles(range(len(half)), 4 * half.shape[1]):
        bits = out[tile].view(np.int32)
        np.copyto(bits, half[tile].view(np.int16))
        bits <<= 13  # exponent and digits are in their places, and so is the sign, with copies of it in between
        bits &= -0x70000001
        out[tile] *= np.float32(2.0**112)  # what lies between the two types' zero of exponents
    return out
