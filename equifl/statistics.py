"""How sure one can be: intervals over repetitions, and differences in pairs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from equifl._numerics.checks import numbers, require, vector
from equifl.extras import needed_by

_ROUNDING = 1e-12  # of a value: differences that vary by less are equal


def interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Mean and half-width of its Student t interval: t_{(1 + confidence)/2, n - 1} * s / sqrt(n), over n repetitions.

    s^2 = sum_i (x_i - mean)^2 / (n - 1). The half-width is nan for a single value. Needs scipy.

    >>> mean, half_width = interval([1, 2, 3])
    >>> mean, round(half_width, 4)
    (2.0, 2.4841)
    """
    given = vector("values", values, "one value a repetition, at least one")
    require("values", given.tolist(), np.isfinite(given).all(), "finite numbers")
    require("confidence", confidence, 0 < confidence < 1, "above 0 and below 1")
    n = len(given)
    if n < 2:
        return float(given.mean()), math.nan
    with needed_by("equifl.statistics.interval"):
        from scipy.special import stdtrit  # the quantile of scipy.stats.t, without a second of imports

    return float(given.mean()), float(stdtrit(n - 1, (1 + confidence) / 2) * given.std(ddof=1) / math.sqrt(n))


def paired(values: ArrayLike, baseline: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """`interval` of the differences x_i - y_i, for repetitions that share their seed. Needs scipy.

    >>> mean, half_width = paired([11, 22, 33], [10, 20, 30])
    >>> mean, round(half_width, 4)
    (2.0, 2.4841)
    """
    here = numbers("values", values, np.float64)
    there = numbers("baseline", baseline, np.float64)
    if here.shape != there.shape:
        raise ValueError(f"baseline: shape {there.shape} is not allowed; allowed: {here.shape}, that of values")
    require("baseline", there.tolist(), np.isfinite(there).all(), "finite numbers")
    return interval(here - there, confidence)


def p_value(values: ArrayLike, baseline: ArrayLike) -> float:
    """The two-sided p of the paired t test that x_i - y_i has the mean 0. Needs scipy.

    It is nan for a single pair, and where all differences are equal but for rounding and not 0: their spread, with
    which the test compares the mean, is then unknown. Else it is below 0.05 if and only if the interval of `paired`
    excludes zero.

    >>> round(p_value([11, 22, 33], [10, 20, 30]), 4)
    0.0742
    """
    mean, half_width = paired(values, baseline)
    n = len(np.asarray(values))
    if n < 2:
        return math.nan
    if half_width <= _ROUNDING * max(np.abs(values).max(), np.abs(baseline).max()):
        return 1.0 if half_width == mean == 0 else math.nan
    from scipy.special import stdtr, stdtrit

    return float(2 * stdtr(n - 1, -abs(mean) / half_width * stdtrit(n - 1, 0.975)))


def holm(p: ArrayLike) -> list[float]:
    """Holm's correction of a family of m p-values: the i-th smallest times m + 1 - i, never falling, at most 1.

    Whoever calls all below 5 % significant errs in one or more of them with a probability of at most 5 %.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    given = numbers("p", p, np.float64)
    require("p", given.tolist(), bool(((given >= 0) & (given <= 1)).all()), "numbers from 0 to 1")
    order = np.argsort(given, kind="stable")
    corrected = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    found = np.empty(len(given))
    found[order] = np.minimum(1.0, corrected)
    return [float(value) for value in found]


def verdict(mean: float, half_width: float, *, printed: float = math.nan, margin: float = math.nan) -> str:
    """What an interval says of a claim that a number is above zero: the first of these that is true.

    holds: the interval lies above zero.
    contradicted: it lies below zero, or the value that others published lies outside of it.
    equivalent within m: it lies within the margin m around zero, so that whatever there is, is no larger.
    not decided: none of these.

    For a claim that a number is below zero, give all three with the other sign.

    Args:
        mean: of the number.
        half_width: of its interval; with nan, of one repetition, nothing is decided.
        printed: the value that others published, if any. Its own error is not known.
        margin: the difference that does not matter, above 0; nan = none is stated.

    >>> [verdict(mean, width, printed=1.0, margin=0.5) for mean, width in ((2, 1), (-2, 1), (0.1, 0.4), (0.6, 0.9))]
    ['holds', 'contradicted', 'contradicted', 'not decided']
    >>> verdict(0.1, 0.3, margin=0.5)
    'equivalent within 0.5'
    """
    require("margin", margin, math.isnan(margin) or 0 < margin < math.inf, "above 0, or nan")
    if mean > half_width:
        return "holds"
    if mean < -half_width or abs(printed - mean) > half_width:
        return "contradicted"
    if abs(mean) + half_width < margin:
        return f"equivalent within {margin:g}"
    return "not decided"


def excludes_zero(mean: float, half_width: float) -> bool:
    """Whether 0 lies outside mean +- half_width; an unknown half-width (nan) excludes nothing.

    >>> excludes_zero(2.0, 1.9), excludes_zero(2.0, 2.1), excludes_zero(2.0, float("nan"))
    (True, False, False)
    """
    return bool(abs(mean) > half_width)
