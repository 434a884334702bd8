"""How sure figures of fairness are where only a part of the clients evaluated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Z = 1.959963984540054  # of the normal distribution, for 95 %


def intervals(accuracy: NDArray[Any], examples: NDArray[Any], clients: int) -> dict[str, float]:
    """Half-widths of 95 % intervals for all clients, in points, by the jackknife; {} below three, or if all evaluated.

    t_{n-1} sqrt((n-1)/n sum_i (x_(i) - mean)^2) sqrt(1 - n/N), x_(i) the figure without client i: with n of N clients,
    drawn at random. The gap and the means of the best and the worst have none: what was not seen may be beyond them.
    """
    n = len(accuracy)
    if not 3 <= n < clients:
        return {}
    scale = 100 * student(n - 1) * math.sqrt((n - 1) * (1 - n / clients))  # of the deviation of the x_(i)
    a = accuracy - accuracy.mean()  # as numbers near 0 their sums keep more digits
    mean = (examples @ a - examples * a) / (examples.sum() - examples)
    order, place = np.sort(a), np.arange(n)
    before = np.cumsum(order) - order
    apart = place * order - before + (a.sum() - before - order) - (n - 1 - place) * order  # sum_j |a_i - a_j|
    without = {
        "accuracy": mean,
        "dissimilarity": (apart.sum() - 2 * apart) / ((n - 1) * (n - 2)),
        "std": np.sqrt(np.maximum(0, (a @ a - a**2) / (n - 1) - ((a.sum() - a) / (n - 1)) ** 2)),
    }
    return {name: scale * float(np.std(each)) for name, each in without.items()}


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to a hundredth of itself, without scipy (Fisher and Cornish 1960).

    >>> [round(student(freedom), 2) for freedom in (4, 9, 99)]
    [2.78, 2.26, 1.98]
    """
    z, v = _Z, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (i + 1) for i, term in enumerate(terms))
