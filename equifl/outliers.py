"""Numbers that nobody can believe, brought down: a client must not win a seat by what it claims."""

from __future__ import annotations

import numpy as np

from equifl.signals import Floats

SPREADS = 20.0
TIMES = 100.0
_NORMAL = 1.4826  # makes the median deviation of normal numbers their standard deviation


def believable(values: Floats) -> Floats:
    """Values of 0 or more in which those out of range are lowered to the highest in range; nan stays nan.

    >>> believable(np.array([0.5, 0.6, np.nan, 0.0, 0.9, 1e9])).tolist()
    [0.5, 0.6, nan, 0.0, 0.9, 0.9]
    """
    return np.minimum(values, highest_believable(values))


def highest_believable(values: Floats) -> float:
    """The highest value in range, which is up to median + 20 * spread or 100 * median, whichever is more.

    The spread is 1.4826 * median of |x - median|; zeros and nan say nothing about the scale and are left out. Both
    medians are the lower of the two middle ones, so fewer than half of the clients, all telling the same lie,
    cannot move the range beyond what the others say; and whoever lies is treated as the honest client with the
    highest value would be, no better. The range is wide because most of the honest may be served well and a few
    badly, and these few are whom it is all about.
    """
    heard = values[values > 0]
    if not len(heard):
        return 0.0
    median = _lower_median(heard)
    spread = _NORMAL * _lower_median(np.abs(heard - median))
    return float(heard[heard <= max(median + SPREADS * spread, TIMES * median)].max())


def _lower_median(values: Floats) -> float:
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])
