import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import statistics

NAN = float("nan")


def test_interval_by_hand() -> None:
    # n = 2: s = sqrt 2, s / sqrt n = 1; the t quantile with 1 degree of freedom is tan(pi (p - 1/2))
    assert statistics.interval([3.0, 5.0]) == pytest.approx((4, math.tan(math.pi * 0.475)))
    # n = 3: s = 1; with 2 degrees of freedom it is (2p - 1) / sqrt(2 p (1 - p)), here for p = 0.9
    quantile = 0.8 / math.sqrt(2 * 0.9 * 0.1)
    assert statistics.interval([1, 2, 3], confidence=0.8) == pytest.approx((2, quantile / math.sqrt(3)))


def test_interval_of_one_value_has_no_width() -> None:
    mean, half_width = statistics.interval([3.0])
    assert mean == 3
    assert math.isnan(half_width)
    assert not statistics.excludes_zero(mean, half_width)


def test_paired_is_the_interval_of_the_differences() -> None:
    # differences 1, 2, 3, though the values themselves spread over decades
    assert statistics.paired([11, 102, 1003], [10, 100, 1000]) == statistics.interval([1, 2, 3])


@pytest.mark.parametrize("here", [[2.0, 3.0], [87.3, 86.1], [1e9 + 0.1, 0.2]])
def test_equal_differences_have_no_p_because_their_spread_is_unknown(here: list[float]) -> None:
    there = [value - 0.1 for value in here]  # but for rounding
    assert math.isnan(statistics.p_value(here, there))
    assert statistics.p_value(here, here) == 1


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_p_does_not_depend_on_the_unit(scale: float) -> None:
    here, there = scale * np.array([1.1, 2.2, 3.3]), scale * np.array([1.0, 2.0, 3.0])
    assert statistics.p_value(here, there) == pytest.approx(0.0742, abs=1e-4)


def test_excludes_zero_by_hand() -> None:
    assert statistics.excludes_zero(-2.0, 1.9)  # -3.9 .. -0.1
    assert not statistics.excludes_zero(-2.0, 2.0)  # 0 is on the edge
    assert not statistics.excludes_zero(0.0, 0.0)
    assert statistics.excludes_zero(0.1, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.interval([]), r"values: shape \(0,\) .* at least one"),
        (lambda: statistics.interval([1.0, NAN]), r"values: \[1.0, nan\] is not allowed; allowed: finite numbers"),
        (lambda: statistics.interval([1.0, 2.0], confidence=95), r"confidence: 95 is not allowed"),
        (lambda: statistics.paired([1.0, 2.0], [1.0]), r"baseline: shape \(1,\) is not allowed; allowed: \(2,\)"),
        (lambda: statistics.paired([1.0], [np.inf]), r"baseline: \[inf\] is not allowed"),
    ],
)
def test_refuses_what_is_wrong_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("mean", "half_width", "printed", "margin", "word"),
    [
        (2.0, 1.0, NAN, NAN, "holds"),
        (0.2, 0.1, NAN, 0.5, "holds"),  # although it is small
        (-2.0, 1.0, NAN, NAN, "contradicted"),  # the interval lies on the other side
        (0.1, 0.3, 1.0, 0.5, "contradicted"),  # the published value is outside
        (0.1, 0.3, 0.3, 0.5, "equivalent within 0.5"),
        (0.1, 0.3, NAN, 0.4, "not decided"),  # the margin is on the edge
        (0.1, 0.3, 0.3, NAN, "not decided"),
        (5.0, NAN, 9.0, 0.5, "not decided"),  # one repetition
    ],
)
def test_verdicts_by_hand(mean: float, half_width: float, printed: float, margin: float, word: str) -> None:
    assert statistics.verdict(mean, half_width, printed=printed, margin=margin) == word


def test_a_margin_is_above_zero() -> None:
    with pytest.raises(ValueError, match=r"margin: 0.0 is not allowed; allowed: above 0, or nan"):
        statistics.verdict(1.0, 2.0, margin=0.0)


@given(p=st.lists(st.sampled_from([0.0, 0.004, 0.01, 0.02, 0.05, 0.3, 0.7, 1.0]), min_size=1, max_size=6))
def test_holm_is_closed_testing_by_bonferroni(p: list[float]) -> None:
    """By definition: a comparison is decided if every family that it is in is, each by its least p; ties and 1 too."""
    places = range(len(p))
    families = [family for size in range(1, len(p) + 1) for family in combinations(places, size)]
    expected = [max(min(1.0, len(f) * min(p[j] for j in f)) for f in families if i in f) for i in places]
    assert statistics.holm(p) == pytest.approx(expected)
