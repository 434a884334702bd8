"""Losses that nobody can believe, brought down: a client must not win a seat by what it claims."""

from __future__ import annotations

import numpy as np

from equifl.signals import Floats

SPREADS = 5.0
_NORMAL = 1.4826  # makes the median deviation of normal numbers their standard deviation
_LEAST = 0.1  # of the median: where most losses are equal, a little more is no lie yet


def believable(losses: Floats) -> Floats:
    """Losses in which those out of range are lowered to the highest in range; nan stays nan.

    In range is what is at most median + 5 * spread, with spread = 1.4826 * median of |x - median|, and at least a
    tenth of the median. Both medians are the lower of the two middle ones, so fewer than half of the clients, all
    telling the same lie, cannot move the range beyond what the others say; and whoever lies is treated as
    the honest client with the highest loss would be, no better.

    >>> believable(np.array([0.5, 0.6, np.nan, 0.9, 1e9])).tolist()
    [0.5, 0.6, nan, 0.9, 0.9]
    """
    heard = losses[~np.isnan(losses)]
    if not len(heard):
        return losses.copy()
    median = _lower_median(heard)
    spread = max(_NORMAL * _lower_median(np.abs(heard - median)), _LEAST * median)
    highest = heard[heard <= median + SPREADS * spread].max()
    return np.minimum(losses, highest)


def _lower_median(values: Floats) -> float:
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])
