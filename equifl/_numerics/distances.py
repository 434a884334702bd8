"""Distances between clients' updates: any rows of the N x N matrix when asked for, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from equifl._numerics.bounds import Bounds, bounded_distances
from equifl._numerics.centring import CentredUpdates, found_bounds
from equifl._numerics.checks import integer
from equifl._numerics.threads import on_all_cores, tiles
from equifl.signals import Floats, Ints, Signals

GIBIBYTE = 2**30
_BLOCK_BYTES = 2**25  # rows computed at a time where the matrix is not kept
_BLOCK_ROWS = 16  # but no fewer than these: every block reads all updates
_CHUNK_BYTES = 2**24  # updates read and multiplied at a time
_CHUNK_CLIENTS = 512  # but no fewer clients than these
_SMALL = 256  # clients: up to here the matrix is always computed
_REFERENCES = 1024  # clients from whom the mean distance is measured

# Below this share of |u_i|^2 + |u_j|^2 the Gram formula has lost its precision in float32.
_CANCELLED = np.float32(1e-3)


class Distances:
    """Pairwise distances of the known clients, numbered 0, 1, ... among themselves.

    Those that `signals` brings are used as they are. Else they are computed from the updates: by rows as they
    are asked for, or all at once when more than half of the rows are wanted and the matrix fits `memory_limit`.
    Extreme ones are bounded, and those of implausible outliers lowered; all are divided by `unit`, a power of two.
    """

    def __init__(self, signals: Signals, memory_limit: int = GIBIBYTE) -> None:
        self._memory_limit = integer("memory_limit", memory_limit, least=1)
        known = signals.knows_update
        self._count = int(known.sum())
        self._matrix: Floats | None = None
        self._largest: Floats | None = None
        self._kept_ids, self._kept = np.zeros(0, np.int64), np.zeros((0, self._count), np.float32)
        self.unit = 1.0
        if signals.distances is not None:
            assert signals.farthest is not None
            distances, farthest, self.unit = bounded_distances(signals.distances, signals.farthest, known)
            self._matrix = distances if known.all() else distances[np.ix_(known, known)]
            self._largest = farthest[known]
        elif signals.updates is not None and self._count:
            ids = None if known.all() else np.flatnonzero(known)
            self._updates = UpdateDistances(signals.updates, ids, copy_limit=self._memory_limit // 2)
            self.unit = self._updates.unit
            if self._count <= _SMALL:
                self._matrix = self._updates.matrix()
        else:
            self._matrix = np.zeros((0, 0))

    def __len__(self) -> int:
        return self._count

    def rows(self, ids: Ints) -> Floats:
        """(len(ids), count) distances from these clients to all; read-only."""
        table = self._matrix
        if table is None:
            if not self._keeps(ids):
                return self._updates.rows(ids)
            ids, table = np.searchsorted(self._kept_ids, ids), self._kept
        if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
            return table[ids[0] : ids[-1] + 1]  # neighbours: a view, no copy
        return table.take(ids, axis=0)

    def foresee(self, steps: Iterable[Ints]) -> None:
        """Announce whose rows will be requested, step by step: computed together they cost less, and are kept."""
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


def centred_products(signals: Signals, around: tuple[Bounds, Floats] | None = None) -> Callable[[Ints, Ints], Floats]:
    """The function of ids and others that gives their (len(ids), len(others)) inner products <u_i - mean, u_j - mean>.

    They are those of bounded updates, in any unit. The mean is that of all known clients; a caller that has it may
    pass it, with the bounds.
    """
    known = signals.knows_update
    if signals.distances is not None:
        assert signals.farthest is not None
        distances, _, _ = bounded_distances(signals.distances, signals.farthest, known)
        spread = np.mean(distances[np.ix_(known, known)].astype(np.float64) ** 2) / 2

        def to_mean(ids: Ints) -> Floats:  # squared, but for the spread
            return np.mean(distances[ids][:, known].astype(np.float64) ** 2, axis=1)

        def by_distances(ids: Ints, others: Ints) -> Floats:
            among = distances[np.ix_(ids, others)].astype(np.float64) ** 2
            return (to_mean(ids)[:, None] + to_mean(others) - among) / 2 - spread

        return by_distances
    assert signals.updates is not None
    updates = signals.updates
    bounds, mean = around or found_bounds(updates, None if known.all() else np.flatnonzero(known))
    wide = np.result_type(updates, np.float64 if bounds.wide else np.float32)
    centre = mean.astype(wide)

    def centred(ids: Ints) -> Floats:
        return np.subtract(bounds(updates[ids]), centre, dtype=wide)

    def by_updates(ids: Ints, others: Ints) -> Floats:
        rows = centred(ids)
        return rows @ (rows if others is ids else centred(others)).T

    return by_updates


@dataclass(frozen=True)
class _Rows:
    """Updates from which distances are measured: centred, raw, their squared norms, and ids (-1 = none)."""

    centred: Floats
    squares: Floats
    raw: Floats
    ids: Ints

    def __getitem__(self, part: slice) -> _Rows:
        return _Rows(self.centred[part], self.squares[part], self.raw[part], self.ids[part])


class UpdateDistances:
    """Euclidean distances between the rows of `updates`, in float32, without the N x N matrix.

    |u_i - u_j|^2 = q_i + q_j - 2 <u_i, u_j> is a matrix product, hence fast, but in float32 it loses all
    its digits when the updates share a large common part. So the mean is subtracted first (distances do
    not change), and the few pairs that are still close to each other are computed by their difference.
    Arguments as for `CentredUpdates`; all that is returned is divided by `unit`.

    >>> UpdateDistances(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).rows(np.array([0])).tolist()
    [[0.0, 5.0, 1.0]]
    """

    def __init__(
        self, updates: Floats, ids: Ints | None = None, *, bounds: Bounds | None = None, copy_limit: int = GIBIBYTE
    ) -> None:
        self._centred = CentredUpdates(updates, ids, bounds=bounds, copy_limit=copy_limit)
        self._squares, self.unit = self._centred.squares, self._centred.bounds.unit

    def __len__(self) -> int:
        return len(self._centred)

    def rows(self, ids: Ints) -> Floats:
        """(len(ids), N) distances from these clients to all."""
        return self._block(ids, 0)

    def rows_of(self, updates: Floats) -> Floats:
        """(len(updates), N): distances from updates that need not be among these to all.

        >>> UpdateDistances(np.array([[0.0, 0.0], [3.0, 4.0]])).rows_of(np.array([[3.0, 0.0]])).tolist()
        [[3.0, 4.0]]
        """
        updates = self._centred.bounds(updates)
        centred = self._centred.centre(updates)
        squares = np.einsum("ij,ij->i", centred, centred)
        nobody = np.full(len(updates), -1)  # an update that is among them gets distance 0 by difference
        return self._to_all(_Rows(centred, squares, updates, nobody), 0)

    @property
    def centre(self) -> Floats:
        """(d,) the mean, as it was subtracted."""
        return self._centred.mean

    def radii(self) -> Floats:
        """(N,) the distance of each from the centre."""
        return np.sqrt(self._squares)

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
        radii = self.radii()
        return radii + radii.max()

    def _block(self, ids: Ints, first: int) -> Floats:
        """From `ids` to the clients `first`, `first` + 1, ..., N - 1."""
        centred = self._centred
        return self._to_all(_Rows(centred.part(ids), self._squares[ids], centred.raw(ids), ids), first)

    def _to_all(self, mine: _Rows, first: int) -> Floats:
        n, d = self._centred.shape
        width = min(n, max(_CHUNK_CLIENTS, _CHUNK_BYTES // (4 * d)))
        doubled = mine.centred * np.float32(-2)
        buffer = np.empty((width, d), np.float32)
        out = np.empty((len(doubled), n - first), np.float32)
        for start in range(first, n, width):
            part = slice(start, min(start + width, n))
            squared = out[:, start - first : part.stop - first]
            np.matmul(doubled, self._centred.part(part, buffer).T, out=squared)
            for tile in tiles(range(len(doubled)), 4 * squared.shape[1]):
                self._root(squared[tile], mine[tile], part)
        return out

    def _root(self, squared: Floats, rows: _Rows, part: slice) -> None:
        """From -2 <u_i, u_j> to distances, in place; the close pairs by direct difference."""
        ids, mine, others = rows.ids, rows.squares, self._squares[part]
        squared += mine[:, None] + others
        inside = np.flatnonzero((ids >= part.start) & (ids < part.stop))
        oneself = inside, ids[inside] - part.start
        squared[oneself] = np.inf  # else every row would have a close pair
        some = np.flatnonzero(squared.min(axis=1) <= _CANCELLED * (mine + others.max()))
        close = np.flatnonzero(squared[some] <= _CANCELLED * (mine[some, None] + others))
        i, j = some[close // len(others)], close % len(others)
        squared[i, j] = squared[oneself] = 0.0
        np.sqrt(squared, out=squared)
        step = max(1, 2**20 // self._centred.shape[1])
        for a, b in ((i[at : at + step], j[at : at + step]) for at in range(0, len(i), step)):
            difference = self._centred.differences(rows.raw[a], b + part.start)
            squared[a, b] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
