"""Ward's hierarchical clustering from a matrix of distances, by nearest-neighbour chains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from equifl.signals import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Tree:
    """Which clusters were merged, children before parents.

    Attributes:
        merges: (N-1, 2) a cluster, named by one of its members, and the one that it went into, likewise.
        heights: (N-1,) Ward's distance of the two.
    """

    merges: Ints
    heights: Floats

    def clusters(self, count: int) -> Ints:
        """(N,) a label of each element, the same within each of `count` clusters: the lowest merges are made."""
        made = np.zeros(len(self.merges), bool)
        made[np.argsort(self.heights, kind="stable")[: len(self.merges) + 1 - count]] = True
        return self._labels(made)

    def clusters_up_to(self, most: float, masses: Floats) -> Ints:
        """(N,) a label of each element: the largest subtrees whose elements have no more than `most` mass together."""
        mass, made = masses.astype(np.float64), np.zeros(len(self.merges), bool)
        for step, (child, into) in enumerate(self.merges.tolist()):
            mass[into] += mass[child]
            made[step] = mass[into] <= most * (1 + 1e-9)
        return self._labels(made)

    def _labels(self, made: Bools) -> Ints:
        labels = np.arange(len(self.merges) + 1)
        for child, into in self.merges[made][::-1].tolist():
            labels[child] = labels[into]
        return labels


def ward(distances: Floats) -> Tree:
    """Ward's tree of N elements, from their (N, N) symmetric distances, which are overwritten.

    The squared distance of a merged cluster to another follows from Lance and Williams' formula; with Euclidean
    distances the merge adds the least to the sum of squares within clusters. O(N^2) in time, and no memory but theirs.

    Raises:
        ValueError: a distance is nan, or so large that sums of squares overflow.

    >>> ward(np.abs(np.subtract.outer([0.0, 1.0, 5.0, 7.0], [0.0, 1.0, 5.0, 7.0]))).clusters(2).tolist()
    [0, 0, 2, 2]
    """
    n = len(distances)
    with np.errstate(over="ignore"):  # refused below
        squares = np.square(distances, out=distances)
    most = math.sqrt(np.finfo(squares.dtype).max) / max(1, n)  # the formula adds up to n^2 squares
    if not squares.max(initial=0.0) <= most**2:
        raise ValueError(f"distances: nan or a number too large is not allowed; allowed: from 0 to {most:.3g}")
    np.fill_diagonal(squares, np.inf)
    sizes, alive = np.ones(n), np.ones(n, bool)
    merges, heights = np.zeros((max(0, n - 1), 2), np.int64), np.zeros(max(0, n - 1))
    chain: list[int] = []
    for step in range(n - 1):
        if not chain:
            chain.append(int(alive.argmax()))
        while True:
            last = chain[-1]
            row = squares[last]
            nearest = int(row.argmin())
            if len(chain) > 1 and row[chain[-2]] <= row[nearest]:  # a tie goes back: the chain must end
                break
            chain.append(nearest)
        child, into = chain.pop(), chain.pop()
        height = float(squares[child, into])
        merges[step], heights[step] = (child, into), np.sqrt(height)
        a, b, c = sizes[child], sizes[into], sizes
        with np.errstate(invalid="ignore"):  # inf - inf, of clusters that are no more
            row = ((a + c) * squares[child] + (b + c) * squares[into] - c * height) / (a + b + c)
        sizes[into] += a
        alive[child] = False
        row[~alive] = np.inf
        row[into] = np.inf
        squares[child], squares[:, child] = np.inf, np.inf
        squares[into], squares[:, into] = row, row
    return Tree(merges, heights)
