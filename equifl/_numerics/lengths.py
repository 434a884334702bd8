"""Lengths of updates, of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def lengths(rows: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """(N,) the length of each row, to the precision of its type.

    >>> lengths(np.array([[3e20, 4e20], [0.0, 5e-324]])).tolist()
    [5e+20, 5e-324]
    """
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    found: NDArray[np.floating[Any]] = np.sqrt(squares, dtype=np.float64)
    most = 1e30 if squares.dtype == np.float32 else 1e280
    extreme = np.flatnonzero(~((squares > 1 / most) & (squares < most)))
    if len(extreme):
        part = rows[extreme].astype(np.float64)
        largest = np.abs(part).max(axis=1)
        part /= np.where(largest > 0, largest, 1)[:, None]
        with np.errstate(over="ignore"):
            long = largest * np.sqrt(np.einsum("ij,ij->i", part, part))
        found[extreme] = np.minimum(long, np.finfo(np.float64).max)
    return found
