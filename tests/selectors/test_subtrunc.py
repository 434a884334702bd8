from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import DivFL, Signals, SubTrunc
from equifl.objectives import FacilityLocation, explain
from equifl.testing import SelectorContract, random_signals
from tests.strategies import some_signals, subsets


class TestContract(SelectorContract):
    def make(self) -> SubTrunc:
        return SubTrunc()


class TestContractStochasticRelativeIdentity(SelectorContract):
    random = True

    def make(self) -> SubTrunc:
        return SubTrunc(lam=5.0, sample=5, scale="relative", phi="identity")


@given(some_signals(unknown=False), st.data())
def test_objective_is_equation_13(signals: Signals, data: st.DataObject) -> None:
    chosen = data.draw(subsets(signals.n))
    lam, b = data.draw(st.floats(0, 3)), data.draw(st.floats(0.1, 3))
    W = SubTrunc(lam=lam, b=b).objective(signals)
    expected = FacilityLocation(signals)(chosen) + lam * min(b, np.log(1 + signals.losses[chosen]).sum())
    assert W(chosen) == pytest.approx(expected)


@given(some_signals(unknown=False), st.data())
def test_without_b_it_is_truncated_at_a_factor_of_an_average_cohort(signals: Signals, data: st.DataObject) -> None:
    chosen, k = data.draw(subsets(signals.n)), data.draw(st.integers(1, 9))
    lam, factor = data.draw(st.floats(0, 3)), data.draw(st.floats(0.1, 3))
    W = SubTrunc(lam=lam, b_factor=factor).objective(signals, k)
    worth = [np.log(1 + loss) for loss in signals.losses]
    enough = factor * k * sum(worth) / signals.n
    expected = FacilityLocation(signals, scale="relative")(chosen) + lam * min(enough, sum(worth[i] for i in chosen))
    assert W(chosen) == pytest.approx(expected, abs=1e-12)


def test_the_truncation_moves_with_the_losses() -> None:
    """All losses times ten and phi the identity: with distances relative to their mean, lam a tenth is the same."""
    signals = random_signals(30)
    louder = replace(signals, losses=10 * signals.losses)
    for lam in (0.5, 5.0):
        ours = SubTrunc(lam=lam, phi="identity").select(signals, 6, rng=0)
        assert ours.tolist() == SubTrunc(lam=lam / 10, phi="identity").select(louder, 6, rng=0).tolist()


def test_without_b_the_objective_needs_k() -> None:
    with pytest.raises(ValueError, match="k: None is not allowed"):
        SubTrunc().objective(random_signals(5))
    assert SubTrunc(b=1.1).objective(random_signals(5)).n == 5


@pytest.mark.filterwarnings("ignore:no client has sent")
@given(some_signals(), st.integers(1, 9), st.integers(0, 100))
def test_without_weight_it_is_divfl(signals: Signals, k: int, seed: int) -> None:
    if not (signals.knows_loss == signals.knows_update).all():
        return  # they do not agree on who is unknown
    k = min(k, signals.n)
    for sample in (None, 3):
        ours = SubTrunc(lam=0, sample=sample).select(signals, k, rng=np.random.default_rng(seed))
        theirs = DivFL(sample=sample).select(signals, k, rng=np.random.default_rng(seed))
        assert ours.tolist() == theirs.tolist()


def test_a_heavy_weight_takes_the_worst_off_until_it_is_enough() -> None:
    signals = random_signals(30)
    W = SubTrunc(lam=1e6, b=2.0)
    chosen = W.select(signals, 6, rng=np.random.default_rng(0))
    assert chosen[0] == np.argmax(signals.losses)
    bonus = explain(W.objective(signals), chosen)[:, 1]
    assert bonus.sum() == pytest.approx(1e6 * 2.0)
    assert bonus[-1] == 0


@pytest.mark.parametrize(
    ("phi", "expected"),
    [("log1p", np.log1p([1.0, 3.0])), ("identity", [1.0, 3.0]), (np.sqrt, np.sqrt([1.0, 3.0]))],
)
def test_phi_by_name_or_function(phi: Any, expected: Any) -> None:
    signals = Signals(losses=np.array([1.0, np.nan, 3.0]), updates=np.eye(3))
    np.testing.assert_allclose(SubTrunc(phi=phi).worth(signals), [expected[0], np.nan, expected[1]])


def test_refuses_a_phi_below_zero() -> None:
    with pytest.raises(ValueError, match=r"phi\(loss\): client 0 has -1.0, .*; allowed: finite and 0 or more"):
        SubTrunc(phi=lambda losses: -losses).objective(Signals(losses=np.ones(2), updates=np.eye(2)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lam": -0.1}, "lam: -0.1 is not allowed; allowed: 0 or more"),
        ({"lam": float("nan")}, "lam: nan"),
        ({"lam": "1"}, "lam: '1' is not allowed; allowed: a number, 0 or more"),
        ({"b_factor": 0}, "b_factor: 0 is not allowed; allowed: above 0"),
        ({"b_factor": float("inf")}, "b_factor: inf is not allowed; allowed: above 0 and finite"),
        ({"b": 1, "b_factor": 2}, "b_factor: 2 is not allowed; allowed: one of the two, b or b_factor"),
        ({"b": 0}, "b: 0 is not allowed; allowed: above 0"),
        ({"b": -1.0}, "b: -1.0"),
        ({"phi": "log"}, "phi: 'log' is not allowed; allowed: log1p, identity or a function"),
        ({"sample": 0}, "sample: 0"),
        ({"scale": "no"}, "scale: 'no'"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SubTrunc(**parameters)


@pytest.mark.parametrize("phi", [lambda losses: losses[:1], lambda losses: 1.0])
def test_refuses_a_phi_that_does_not_give_one_value_a_client(phi: Any) -> None:
    with pytest.raises(ValueError, match=r"phi\(losses\): shape .* allowed: \(3,\)"):
        SubTrunc(phi=phi).objective(Signals(losses=np.ones(3), updates=np.eye(3)))
