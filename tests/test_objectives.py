import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import Signals
from equifl.objectives import FacilityLocation, Modular, Scaled, SetFunction, Sum, Truncated, explain, terms
from tests.strategies import functions, monotone_functions, some_signals, subsets


@given(functions(), st.data())
def test_fast_path_is_the_definition(function: SetFunction, data: st.DataObject) -> None:
    chosen = data.draw(subsets(function.n))
    state = function.init()
    everyone = np.arange(function.n)
    for i in range(len(chosen) + 1):
        expected = [function([*chosen[:i], e]) - function(chosen[:i]) for e in everyone]
        gains = function.gains(state, everyone)
        others = ~np.isin(everyone, chosen[:i])
        np.testing.assert_allclose(gains[others], np.array(expected)[others], rtol=1e-4, atol=1e-4)
        if i < len(chosen):
            state = function.update(state, int(chosen[i]))


@given(functions())
def test_the_empty_set_is_worth_nothing(function: SetFunction) -> None:
    assert function([]) == 0


@given(functions(), st.data())
def test_returns_diminish_to_the_last_bit(function: SetFunction, data: st.DataObject) -> None:
    """Proposition 2, and Proposition 1 within it; exact, because lazy greedy relies on it."""
    chosen = data.draw(subsets(function.n))
    state = function.init()
    left = np.setdiff1d(np.arange(function.n), chosen)
    before = function.gains(state, left)
    for element in chosen:
        state = function.update(state, int(element))
        after = function.gains(state, left)
        assert (after <= before).all()
        before = after


@given(monotone_functions(), st.data())
def test_monotone_functions_never_fall(function: SetFunction, data: st.DataObject) -> None:
    """Propositions 1 and 3."""
    assert function.monotone
    chosen = data.draw(subsets(function.n))
    values = [function(chosen[:i]) for i in range(len(chosen) + 1)]
    assert (np.diff(values) >= -1e-6 * max(1.0, abs(values[-1]))).all()


@given(functions(most=5))
def test_definition_is_submodular(function: SetFunction) -> None:
    """By definition 2, over all pairs of nested sets."""
    value = {
        frozenset(s): function(list(s))
        for size in range(function.n + 1)
        for s in itertools.combinations(range(function.n), size)
    }
    for small, large in itertools.product(value, value):
        for e in set(range(function.n)) - large:
            if small <= large:
                assert value[small | {e}] - value[small] >= value[large | {e}] - value[large] - 1e-4


def test_facility_location_on_hand_worked_numbers() -> None:
    G = FacilityLocation(Signals(updates=[[0.0], [1.0], [10.0]]))  # type: ignore[arg-type]
    # Largest distances 10, 9, 10. To {1}: 1, 0, 9. To {0, 2}: 0, 1, 0.
    assert G([1]) == (10 - 1) + (9 - 0) + (10 - 9)
    assert G([0, 2]) == 10 + 8 + 10
    assert G([0, 0, 2]) == G([2, 0])


@given(some_signals(unknown=False, least=2), st.data())
def test_relative_scale_divides_by_the_mean_distance(signals: Signals, data: st.DataObject) -> None:
    assert signals.updates is not None
    chosen = data.draw(subsets(signals.n))
    distances = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
    absolute, relative = FacilityLocation(signals), FacilityLocation(signals, scale="relative")
    assert relative(chosen) * (distances.mean() or 1.0) == pytest.approx(absolute(chosen), rel=1e-5, abs=1e-5)


@given(some_signals(), st.data())
def test_distances_given_or_from_updates_are_the_same(signals: Signals, data: st.DataObject) -> None:
    assert signals.updates is not None
    chosen = data.draw(subsets(signals.n))
    given_ones = Signals(distances=np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2))
    one, other = FacilityLocation(signals), FacilityLocation(given_ones)
    assert one(chosen) == pytest.approx(other(chosen), rel=1e-4, abs=1e-4)
    assert one.known.tolist() == other.known.tolist()


def test_unknown_clients_neither_represent_nor_are_represented() -> None:
    nan = float("nan")
    with_unknown = FacilityLocation(Signals(updates=np.array([[0.0], [nan], [1.0], [10.0]])))
    without = FacilityLocation(Signals(updates=np.array([[0.0], [1.0], [10.0]])))
    assert with_unknown.known.tolist() == [True, False, True, True]
    assert with_unknown([0, 1]) == without([0])
    gains = with_unknown.gains(with_unknown.init(), np.arange(4))
    assert gains.tolist() == [18, 0, 19, 10]
    assert with_unknown.update(with_unknown.init(), 1).tolist() == with_unknown.init().tolist()


def test_nobody_known_is_a_function_that_knows_nobody() -> None:
    G = FacilityLocation(Signals(losses=np.ones(3)))
    assert not G.known.any()
    assert G([0, 1]) == 0
    assert G.gains(G.init(), np.arange(3)).tolist() == [0, 0, 0]


def test_only_modular_functions_can_be_negated() -> None:
    F, G = Modular([1.0, 2.0]), FacilityLocation(Signals(updates=np.eye(2)))
    assert (G - F)([0, 1]) == G([0, 1]) - 3
    assert not (G - F).monotone
    with pytest.raises(ValueError, match="only Modular functions may be negated"):
        F - G
    with pytest.raises(ValueError, match="must be monotone"):
        Truncated(G - F, 1.0)
    with pytest.raises(ValueError, match="must be monotone"):
        Truncated(Modular([1.0, -1.0]), 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Truncated(Modular([1.0]), 0.0), "b: 0.0 is not allowed; allowed: above 0"),
        (lambda: Truncated(Modular([1.0]), float("nan")), "b: nan"),
        (lambda: Scaled(float("inf"), Truncated(Modular([1.0]), 1.0)), "factor: inf"),
        (lambda: Modular([[1.0]]), r"weights: shape \(1, 1\)"),
        (lambda: Modular([np.inf]), "weights: client 0 has inf"),
        (lambda: Modular([1.0]) + Modular([1.0, 2.0]), r"ground sets of \[1, 2\] clients"),
        (lambda: Modular([1.0])([1]), r"subset: \[1\] is not allowed; allowed: ids from 0 to 0"),
        (lambda: FacilityLocation(Signals(losses=np.ones(2)), memory_limit=0), "memory_limit: 0"),
    ],
)
def test_refuses_bad_parameters(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_sums_are_flat_so_that_a_choice_can_be_explained() -> None:
    F = Modular([1.0, 2.0])
    total = F + 2 * F + (F - F)
    assert isinstance(total, Sum)
    assert len(terms(total)) == 4
    assert terms(F) == (F,)


@given(functions(), st.data())
def test_explanation_adds_up(function: SetFunction, data: st.DataObject) -> None:
    chosen = data.draw(subsets(function.n))
    table = explain(function, chosen)
    assert table.shape == (len(chosen), len(terms(function)))
    expected = [term(chosen) for term in terms(function)]
    np.testing.assert_allclose(table.sum(axis=0), expected, rtol=1e-4, atol=1e-4)
