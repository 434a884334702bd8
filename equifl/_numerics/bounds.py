"""Updates brought into a range where their products neither overflow nor vanish, with outliers bounded.

Ordinary updates are read as they are. Extreme ones are divided by a power of two, which rounds nothing, and those that
are implausibly long are shortened, so that one client can neither shift the mean nor take the digits of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from equifl._numerics.lengths import lengths
from equifl.outliers import TIMES_OF_LENGTHS, outlier_bound, outlier_limit
from equifl.signals import Bools, Floats

_LEAST, _MOST = 1e-9, 1e15  # differences in this range are not scaled: squares, and sums of these, fit float32
_SAMPLE = 1024  # clients, evenly spaced, whose lengths say what is plausible
_FEW = 32  # of them: enough to see that updates differ
_REFERENCES = 64  # clients of which one is taken as typical where there are distances alone


@dataclass(frozen=True)
class Bounds:
    """A function of rows of updates: those longer than `longest` shortened to it, and all divided by 2^exponent.

    `Bounds()` returns them as they are. `wide`: in float64, where float32 cannot hold both a large common part and the
    differences from it.

    >>> Bounds(longest=5.0, exponent=1)(np.array([[30.0, 40.0], [0.0, 4.0]])).tolist()
    [[1.5, 2.0], [0.0, 2.0]]
    """

    longest: float = math.inf
    exponent: int = 0
    wide: bool = False

    @property
    def unit(self) -> float:
        """What bounded updates are divided by."""
        return math.ldexp(1.0, self.exponent)

    def __call__(self, rows: Floats) -> Floats:
        if self == Bounds():
            return rows
        rows = rows.astype(np.float64 if self.wide else np.result_type(rows, np.float32), copy=False)
        with np.errstate(over="ignore"):  # of rows that are too long, and replaced
            found = np.ldexp(rows, -self.exponent)
        if self.longest < math.inf:
            far = np.flatnonzero(lengths(rows) > self.longest * (1 + 1e-4))  # more than the rounding error
            direction = rows[far] / np.abs(rows[far]).max(axis=1, keepdims=True)
            direction /= lengths(direction)[:, None]
            found[far] = math.ldexp(self.longest, -self.exponent) * direction
        return found


def scaled_products(a: Floats, b: Floats) -> Floats:
    """Products of numbers of 0 or more, divided by a power of two: the largest is from 1/4 to 1, nothing overflows.

    Where the products are of ordinary size, they have the same digits. nan stays nan.

    >>> scaled_products(np.array([1e308, 2.0, np.nan]), np.array([1e300, 0.0, 1.0])).round(2).tolist()
    [0.42, 0.0, nan]
    """
    (a, a_exponents), (b, b_exponents) = np.frexp(a), np.frexp(b)
    products, exponents = a * b, a_exponents + b_exponents
    positive = exponents[products > 0]
    found: Floats = np.ldexp(products, exponents - (positive.max() if len(positive) else 0))
    return found


@dataclass(frozen=True)
class Survey:
    """What was seen in one pass over updates.

    Attributes:
        mean: (d,) of the updates.
        reach: the largest difference of any number from it; nan if it was not looked for.
        plausible: the largest length up to the limit that was given.
        longest: the largest length.
    """

    mean: Floats
    reach: float
    plausible: float
    longest: float


def bounds_and_mean(sample: Floats, look: Callable[[Bounds, float], Survey]) -> tuple[Bounds, Floats]:
    """How to read updates, and their mean then.

    Args:
        sample: some of the updates, evenly spaced (`sampled`): their lengths say what is plausible.
        look: surveys all, given bounds and a limit of plausible lengths.
    """
    narrow = sample.astype(np.result_type(sample, np.float32), copy=False)
    limit = outlier_limit(lengths(narrow), TIMES_OF_LENGTHS)
    seen = look(Bounds(), limit)
    if seen.longest <= min(limit, _MOST) and np.abs(narrow[:_FEW] - seen.mean).max() > _LEAST:
        return Bounds(), seen.mean
    # From here on in float64, where any scale gives the same digits.
    limit = outlier_limit(lengths(sample.astype(np.float64)), TIMES_OF_LENGTHS)
    longest = look(Bounds(wide=True), limit).plausible
    first = Bounds(longest, _exponent(longest), wide=True)
    seen = look(first, limit)
    more = min(_exponent(seen.reach), 1023 - first.exponent)
    wide = more < -100  # float32 goes to 2^128
    return Bounds(longest, first.exponent + more, wide), np.ldexp(seen.mean, -more)


def sampled(rows: Any) -> Any:
    """Evenly spaced ones of an array, as many as it takes to say what is plausible."""
    return rows[:: -(-len(rows) // _SAMPLE)]


def bounded_distances(distances: Floats, farthest: Floats, known: Bools) -> tuple[Floats, Floats, float]:
    """Distances, and the farthest of each row, with those of outliers lowered; divided by a power of two, the third.

    An outlier is a client implausibly far from a typical one, which has the least median distance. Its distances are
    lowered to twice the largest plausible one: no two other clients are farther apart.
    """
    ids = np.flatnonzero(known)
    if not len(ids):
        return distances, farthest, 1.0
    some = distances[np.ix_(ids[:: -(-len(ids) // _REFERENCES)], ids)]
    middle = (len(ids) - 1) // 2
    typical = some[np.argmin(np.partition(some, middle, axis=1)[:, middle])].astype(np.float64)
    longest = outlier_bound(typical, TIMES_OF_LENGTHS)
    largest = float(farthest[ids].max())
    cap = min(2 * longest, largest) if typical.max() > longest else largest
    if cap == largest and (largest == 0 or _LEAST < largest < _MOST):
        return distances, farthest, 1.0
    exponent = _exponent(cap)
    lowered, least = (np.ldexp(np.minimum(array, cap), -exponent) for array in (distances, farthest))
    return lowered, least, math.ldexp(1.0, exponent)


def _exponent(size: float) -> int:
    """Of the largest power of two up to it."""
    return math.frexp(size)[1] - 1
