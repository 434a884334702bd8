"""Checksums of the rows of an array."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.sketch import pseudorandom


def checksums(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """(N,) the checksum of each row, 0 for a row of nan; a row that was changed has another one.

    The sum of a row's words of 64 bits, each times an odd number, modulo 2**64. A change within one word always shows;
    others do but for a chance of 2**-64, or some 2**-28 where only the highest bits of words changed.

    >>> unknown, one, other = checksums(np.array([[np.nan, np.nan], [1.0, 2.0], [2.0, 1.0]], np.float32))
    >>> int(unknown), bool(one == other)
    (0, False)
    """
    weights, of_nan = _weights(rows.shape[1], rows.dtype.str)
    return np.einsum("ij,j->i", _words(rows), weights) - of_nan


def _words(rows: NDArray[Any]) -> NDArray[Any]:
    """The bits of each row in words of 64, if it has whole ones. Their high bits are mixed into the low ones.

    A product modulo 2**64 keeps one bit of a word's highest: without this, two changed signs could cancel out.
    """
    row_bytes = rows.itemsize * rows.shape[1]
    if row_bytes % 8:
        return rows.view(np.uint32 if row_bytes % 4 == 0 else np.uint16)  # low bits of a product anyhow
    words = rows.view(np.uint64)
    mixed = words >> np.uint64(37)
    mixed ^= words
    return mixed


@lru_cache(maxsize=8)
def _weights(length: int, dtype: str) -> tuple[NDArray[np.uint64], np.uint64]:
    """A number for each word of a row, and the sum that a row of nan has with them."""
    (nan,) = _words(np.full((1, length), np.nan, dtype))
    weights = pseudorandom(np.arange(len(nan))).view(np.uint64) | np.uint64(1)
    return weights, np.einsum("j,j", nan, weights)
