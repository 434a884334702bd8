"""Clip implausible outliers, so that no client is selected because of a false report."""

from __future__ import annotations

import numpy as np

from equifl.signals import Floats

SPREADS = 20.0
TIMES = 100.0
TIMES_OF_LENGTHS = 1000.0  # of updates: honest ones differ by up to 100 where the model fits some clients only
_NORMAL = 1.4826  # makes the median deviation of normal numbers their standard deviation


def clip_outliers(values: Floats) -> Floats:
    """The values, 0 or more, with those above `outlier_bound` lowered to it; nan stays nan.

    >>> clip_outliers(np.array([0.5, 0.6, np.nan, 0.0, 0.9, 1e9])).tolist()
    [0.5, 0.6, nan, 0.0, 0.9, 0.9]
    """
    return np.minimum(values, outlier_bound(values))


def outlier_bound(values: Floats, times: float = TIMES) -> float:
    """The largest value up to `outlier_limit`: a false report then counts as the largest honest value."""
    return float(values[(values > 0) & (values <= outlier_limit(values, times))].max(initial=0.0))


def outlier_limit(values: Floats, times: float = TIMES) -> float:
    """What no honest value exceeds: max(median + 20 * spread, `times` * median); infinity if there is no scale.

    The spread is 1.4826 * median of |x - median|. Zeros and nan are left out, since they carry no information on the
    scale. Both medians are lower medians, so fewer than half of the clients, all reporting the same false value,
    cannot move the limit. The range is wide because a model may serve most honest clients well and a few badly, and
    these few must stay visible.
    """
    positive = values[values > 0]
    if not len(positive):
        return np.inf
    median = lower_median(positive)
    spread = _NORMAL * lower_median(np.abs(positive - median))
    return max(median + SPREADS * spread, times * median)


def lower_median(values: Floats) -> float:
    """The median, of an even number the smaller of the two in the middle: half of them cannot raise it.

    >>> lower_median(np.array([3.0, 1.0, 9.0, 8.0]))
    3.0
    """
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])
