"""Distances between clients' updates: any rows of the N x N matrix when asked for, or all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from equifl.checks import integer
from equifl.signals import Bools, Floats, Ints, Signals
from equifl.threads import on_all_cores, tiles

GIBIBYTE = 2**30
_BLOCK_BYTES = 2**25  # rows computed at a time where the matrix is not kept
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
        if signals.distances is not None:
            self._matrix = signals.distances if known.all() else signals.distances[np.ix_(known, known)]
            assert signals.farthest is not None
            self._largest = signals.farthest[known]
        elif signals.updates is not None and self._count:
            self._updates = UpdateDistances(signals.updates if known.all() else signals.updates[known])
            if self._count <= _SMALL:
                self._matrix = self._updates.matrix()
        else:
            self._matrix = np.zeros((0, 0))

    def __len__(self) -> int:
        return self._count

    def rows(self, ids: Ints) -> Floats:
        """(len(ids), count): from these clients to everybody; not to be written to."""
        if self._matrix is None:
            return self._updates.rows(ids)
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
            return self._matrix[ids[0] : ids[-1] + 1]  # neighbours: a view, no copy
        return self._matrix.take(ids, axis=0)

    def reduce(self, ids: Ints, function: Callable[[Floats], Floats]) -> Floats:
        """(len(ids),) `function(rows)` of the rows of `ids`; it sees a few of them at a time."""
        fits = 4 * self._count**2 <= self._memory_limit
        if self._matrix is None and fits and len(ids) > self._count // 2:
            self._matrix = self._updates.matrix()
        out = np.empty(len(ids))
        row_bytes = 4 * self._count
        if self._matrix is None:
            step = max(1, min(_BLOCK_BYTES, self._memory_limit) // max(1, row_bytes))
            for start in range(0, len(ids), step):
                block = self.rows(ids[start : start + step])
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
    centred = np.subtract(signals.updates[ids], _mean(signals.updates, known).astype(wide), dtype=wide)
    unit = max(float(centred.max(initial=0)), -float(centred.min(initial=0)))
    if not unit < 1e30:
        raise ValueError(f"updates: differ by {unit:.0e}; allowed: up to 1e30")
    return centred @ centred.T


def _mean(updates: Floats, known: Bools, block: int = 2**16) -> Floats:
    """The mean row of those known, without a copy of all of them."""
    starts = range(0, len(updates), block)
    parts = (updates[a : a + block][known[a : a + block]].sum(axis=0, dtype=np.float64) for a in starts)
    total: Floats = np.sum(list(parts), axis=0)
    return total / known.sum()


class UpdateDistances:
    """Euclidean distances between the rows of `updates`, in float32, without the N x N matrix.

    |u_i - u_j|^2 = q_i + q_j - 2 <u_i, u_j> is a matrix product, hence fast, but in float32 it loses all
    its digits when the updates share a large common part. So the mean is subtracted first (distances do
    not change), and the few pairs that are still close to each other are computed by their difference.

    >>> UpdateDistances(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).rows(np.array([0])).tolist()
    [[0.0, 5.0, 1.0]]
    """

    def __init__(self, updates: Floats) -> None:
        self._updates = updates
        self._wide = np.result_type(updates, np.float32)  # differences of float16 are taken in float32
        mean = updates.mean(axis=0, dtype=np.float64).astype(self._wide)
        centred = np.subtract(updates, mean, dtype=self._wide)
        # By a power of two, which rounds nothing, so that the squares neither overflow nor vanish.
        largest = max(float(centred.max()), -float(centred.min()))
        if largest and not 1e-30 < largest < 1e30:  # nor does their sum over all clients
            raise ValueError(f"updates: differ by {largest:.0e}; allowed: by 1e-30 to 1e30, or not at all")
        self._unit = np.float32(2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0)
        centred /= self._unit
        self._centred = centred = centred.astype(np.float32, copy=False)
        self._squares = np.einsum("ij,ij->i", centred, centred)

    def __len__(self) -> int:
        return len(self._centred)

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

    def _block(self, ids: Ints, first: int) -> Floats:
        """From `ids` to the clients `first`, `first` + 1, ..., N - 1."""
        squared = self._centred[ids] @ self._centred[first:].T
        sums = self._squares[ids, None] + self._squares[first:]
        squared *= -2
        squared += sums
        sums *= _CANCELLED
        close = squared <= sums
        np.maximum(squared, np.zeros(squared.shape[1], np.float32), out=squared)
        distances = np.sqrt(squared, out=squared)
        distances *= self._unit
        self._refine(distances, close, ids, first)
        return distances

    def _refine(self, distances: Floats, close: Bools, ids: Ints, first: int) -> None:
        """Recompute the close pairs by direct difference, a few at a time."""
        rows, columns = np.nonzero(close)
        chunk = max(1, 2**20 // self._updates.shape[1])
        for start in range(0, len(rows), chunk):
            i, j = rows[start : start + chunk], columns[start : start + chunk]
            difference = np.subtract(self._updates[ids[i]], self._updates[j + first], dtype=self._wide)
            difference /= self._unit
            distances[i, j] = self._unit * np.sqrt(np.einsum("ij,ij->i", difference, difference))
