import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equifl import DivFL, PowerOfChoice, Rota, Signals, SubTrunc, Uniform, UnionFL
from equifl._numerics.bounds import Bounds, bounded_distances, scaled_products
from equifl._numerics.centring import found_bounds
from equifl._numerics.lengths import lengths
from equifl.selectors.base import Selector
from equifl.signals import Floats

TYPES = [np.float16, np.float32, np.float64]


def plain(n: int = 30, d: int = 5) -> Floats:
    return np.random.default_rng(0).normal(size=(n, d))


def pairwise(updates: Floats) -> Floats:
    return np.linalg.norm(updates[:, None] - updates, axis=2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("common", [0.0, 100.0])
def test_ordinary_updates_are_read_as_they_are(dtype: Any, common: float) -> None:
    updates = (plain() + common).astype(dtype)
    bounds, mean = found_bounds(updates, None)
    assert bounds == Bounds()
    assert bounds(updates) is updates
    np.testing.assert_allclose(mean, updates.mean(axis=0, dtype=np.float64))


@pytest.mark.parametrize("times", [80, 900])
def test_honest_clients_may_differ_by_some_hundred_times(times: float) -> None:
    updates = plain()
    updates[:5] *= times / 4
    assert found_bounds(updates, None)[0] == Bounds()
    distances = pairwise(updates)
    assert bounded_distances(distances, distances.max(axis=1), np.ones(30, bool))[0] is distances


@settings(deadline=None)
@given(st.integers(-290, 290))
def test_a_power_of_two_rounds_nothing(exponent: int) -> None:
    updates = np.ldexp(plain(), exponent)
    bounds, mean = found_bounds(updates, None)
    np.testing.assert_array_equal(np.ldexp(bounds(updates), bounds.exponent), updates)
    if bounds.exponent:
        np.testing.assert_array_equal(np.ldexp(mean, bounds.exponent - exponent), plain().mean(axis=0))
        assert 1 <= np.abs(bounds(updates) - mean).max() < 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e19, 1e31, 1e37])
@pytest.mark.parametrize("liars", [1, 14])
def test_outliers_are_shortened_to_the_longest_of_the_others(dtype: Any, scale: float, liars: int) -> None:
    updates = plain()
    given = updates.copy()
    given[:liars] *= scale
    given = given.astype(dtype)
    bounds, mean = found_bounds(given, None)
    seen = bounds.unit * bounds(given).astype(np.float64)
    np.testing.assert_allclose(seen[liars:], given[liars:])
    np.testing.assert_allclose(lengths(seen[:liars]), lengths(given[liars:]).max(), rtol=1e-6)
    cosines = (seen * updates).sum(axis=1) / lengths(seen) / lengths(updates)
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)  # all that is left of them is their direction
    np.testing.assert_allclose(bounds.unit * mean, seen.mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e280])
def test_distances_of_outliers_are_lowered_and_all_are_scaled(scale: float) -> None:
    updates = plain()
    distances = scale * pairwise(updates)
    far = distances.copy()
    far[3], far[:, 3] = 1e5 * scale, 1e5 * scale
    far[3, 3] = 0
    known = np.arange(30) != 7
    far[7], far[:, 7] = np.nan, np.nan
    farthest = np.where(known, np.nan_to_num(far).max(axis=1), np.nan)
    seen, most, unit = bounded_distances(far, farthest, known)
    others = known & (np.arange(30) != 3)
    np.testing.assert_allclose(unit * seen[np.ix_(others, others)], distances[np.ix_(others, others)])
    assert distances[np.ix_(others, others)].max() <= unit * seen[3, others].min() <= 20 * scale
    assert np.isnan(seen[7]).all()
    np.testing.assert_array_equal(most[known], seen[np.ix_(known, known)].max(axis=1))
    assert math.frexp(unit)[0] == 0.5


SCALE_FREE = [
    Uniform(),
    PowerOfChoice(),
    DivFL(),
    DivFL(sample=20),
    DivFL(memory_limit=2**16),
    Rota(),
    SubTrunc(scale="relative"),
    UnionFL(inner=DivFL(scale="relative")),
]


def cohorts(selector: Selector, updates: Floats, dtype: Any, kind: str) -> list[int]:
    rng = np.random.default_rng(1)
    sent = updates.astype(dtype)
    given = {"updates": sent} if kind == "updates" else {"distances": pairwise(sent.astype(np.float64))}
    n = len(updates)
    signals = Signals(losses=rng.random(n), last_selected=rng.integers(-1, 9, n), round=9, **given)
    return [id for seed in range(2) for id in selector.select(signals, 6, rng=np.random.default_rng(seed)).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("selector", SCALE_FREE, ids=repr)
@pytest.mark.parametrize("kind", ["updates", "distances"])
@pytest.mark.parametrize("outlier", [1.0, 1e6])
def test_cohorts_do_not_depend_on_the_common_scale(selector: Selector, kind: str, outlier: float) -> None:
    updates = plain(300, 12)
    updates[17] *= outlier
    expected = cohorts(selector, updates, np.float32, kind)
    for exponent in (-100, -31, 10, 100):
        assert cohorts(selector, np.ldexp(updates, exponent), np.float32, kind) == expected, exponent
        assert cohorts(selector, updates * 10.0 ** (exponent * 0.3), np.float64, kind) == expected, exponent


@pytest.mark.parametrize("selector", [*SCALE_FREE, SubTrunc(), UnionFL()], ids=repr)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [5e-324, 1e-40, 1e19, 1e31, 1e300])
def test_no_finite_update_stops_a_selector(selector: Selector, dtype: Any, value: float) -> None:
    with np.errstate(over="ignore"):
        fits = np.isfinite(np.array(value).astype(dtype))
    value = value if fits else float(np.finfo(dtype).max)
    for who in (slice(17, 18), slice(0, 100), slice(0, 300)):
        updates = plain(300, 12)
        updates[who] = np.clip(value * updates[who], -np.finfo(dtype).max, np.finfo(dtype).max)
        assert len(cohorts(selector, updates, dtype, "updates")) == 12


@given(st.integers(0, 1000))
def test_scaled_products_have_the_digits_of_the_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(sigma=9, size=(2, 20)) * (rng.random((2, 20)) < 0.9)
    found = scaled_products(a, b)
    np.testing.assert_array_equal(found / found.max(), a * b / (a * b).max())


def test_scaled_products_neither_overflow_nor_vanish() -> None:
    a, b = np.array([1e308, 1e-308, 1e308, 0.0, np.nan]), np.array([1e308, 1e-308, 1.0, 1e308, 1.0])
    assert scaled_products(a, b)[[0, 2]] / scaled_products(a, b)[0] == pytest.approx([1.0, 1e-308])
    assert scaled_products(a, b)[1] == scaled_products(a, b)[3] == 0
    assert np.isnan(scaled_products(a, b)[4])
    tiny = np.array([1e-300, 3e-300])
    assert scaled_products(tiny, tiny)[1] / scaled_products(tiny, tiny)[0] == pytest.approx(9.0)
    assert scaled_products(np.zeros(2), tiny).tolist() == [0.0, 0.0]
