from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import DivFL, Signals, SignalStore, SubTrunc, UnionFL
from equifl.objectives import FacilityLocation, Modular, SetFunction
from equifl.selectors.base import needs
from equifl.testing import SelectorContract, random_signals
from tests.strategies import some_signals, subsets


class TestContract(SelectorContract):
    def make(self) -> UnionFL:
        return UnionFL()


class TestContractWithSubTruncInside(SelectorContract):
    random = True

    def make(self) -> UnionFL:
        return UnionFL(mu=3.0, window=2, inner=SubTrunc(lam=2.0, sample=4, scale="relative"))


@given(some_signals(unknown=False), st.data())
def test_objective_is_equation_14(signals: Signals, data: st.DataObject) -> None:
    chosen = data.draw(subsets(signals.n))
    mu, window = data.draw(st.floats(0, 3)), data.draw(st.integers(1, 6))
    recent = {i for i in range(signals.n) if signals.last_selected[i] in range(max(0, 5 - window), 5)}
    expected = FacilityLocation(signals)(chosen) - mu * len(recent & set(chosen.tolist()))
    assert UnionFL(mu=mu, window=window).objective(signals)(chosen) == pytest.approx(expected)


@given(some_signals(unknown=False), st.data())
def test_without_mu_the_penalty_is_in_mean_distances(signals: Signals, data: st.DataObject) -> None:
    chosen, factor = data.draw(subsets(signals.n)), data.draw(st.floats(0, 3))
    G = FacilityLocation(signals, scale="relative")
    for inner in (DivFL(), DivFL(scale="absolute"), SubTrunc(lam=0)):
        union = UnionFL(mu_factor=factor, window=3, inner=inner)
        repeated = sum(union.recent(signals)[chosen])
        assert union.objective(signals, 4)(chosen) == pytest.approx(G(chosen) - factor * repeated, abs=1e-9)


def test_an_inner_selector_gets_k_if_it_needs_it() -> None:
    signals = random_signals(12)
    ours = UnionFL(mu=0, inner=SubTrunc(lam=3.0)).select(signals, 5, rng=0)
    assert ours.tolist() == SubTrunc(lam=3.0).select(signals, 5, rng=0).tolist()


def test_an_inner_selector_without_a_scale_needs_a_mu() -> None:
    class Own:
        def objective(self, signals: Signals) -> SetFunction:
            return Modular(signals.losses)

    with pytest.raises(ValueError, match=r"mu: None is not allowed; allowed: a number, as .*Own.* has no `scale`"):
        UnionFL(inner=Own())
    assert UnionFL(mu=0.0, inner=Own()).objective(random_signals(3)).n == 3


def test_absolute_distances_that_were_asked_for_need_a_mu() -> None:
    """Without one f is made relative, and SubTrunc's b would be compared with something else than the user meant."""
    for inner in (SubTrunc(b=1.1), SubTrunc(scale="absolute"), SubTrunc(b=1.1, scale="absolute")):
        with pytest.raises(ValueError, match=r"mu: None is not allowed; allowed: a number, as SubTrunc\(.* absolute"):
            UnionFL(inner=inner)
        signals = random_signals(9)
        f = inner.objective(signals, 3)
        assert UnionFL(mu=0.0, inner=inner).objective(signals, 3)([0, 4]) == f([0, 4])
    relative = SubTrunc(b=1.1, scale="relative")
    assert UnionFL(mu_factor=0.0, inner=relative).objective(signals, 3)([0, 4]) == relative.objective(signals, 3)(
        [0, 4]
    )


def test_the_union_of_the_last_cohorts_is_what_the_store_remembers() -> None:
    store = SignalStore(8)
    cohorts = [[0, 1], [2, 3], [0, 4], [5, 6]]
    for round, ids in enumerate(cohorts):
        store.observe(ids, updates=np.eye(8)[ids], round=round)
    store.observe([7], updates=np.eye(8)[[7]])
    for window in (1, 2, 3, 4, 9):
        union = set().union(*cohorts[-window:])
        signals = store.signals(len(cohorts))
        G, h = DivFL().objective(signals), UnionFL(mu=1.0, window=window).objective(signals)
        priced = {i for i in range(8) if G([i]) - h([i]) > 0.5}
        assert priced == union


@pytest.mark.filterwarnings("ignore:no client has sent updates")
@given(some_signals(), st.integers(1, 9), st.integers(0, 100))
def test_without_price_it_is_the_inner_selector(signals: Signals, k: int, seed: int) -> None:
    k = min(k, signals.n)
    for inner in (DivFL(), DivFL(sample=3)):
        ours = UnionFL(mu=0, inner=inner).select(signals, k, rng=np.random.default_rng(seed))
        assert ours.tolist() == inner.select(signals, k, rng=np.random.default_rng(seed)).tolist()


def test_a_heavy_price_keeps_the_last_cohort_out() -> None:
    rng = np.random.default_rng(0)
    store = SignalStore(30)
    store.observe(np.arange(30), updates=rng.normal(size=(30, 4)), losses=rng.random(30))
    seen: list[int] = []
    for round in range(6):
        chosen = UnionFL(mu=1e6, window=10).select(store.signals(round), 5, rng=rng)
        store.observe(chosen, round=round)
        seen += chosen.tolist()
    assert sorted(seen) == list(range(30))


def test_its_own_sample_overrides_the_inner_one() -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(40, 3)))
    exact = UnionFL(inner=DivFL(sample=1), sample=40).select(signals, 5, rng=np.random.default_rng(0))
    assert exact.tolist() == DivFL().select(signals, 5, rng=np.random.default_rng(0)).tolist()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mu": -1.0}, "mu: -1.0 is not allowed; allowed: 0 or more"),
        ({"mu_factor": -1.0}, "mu_factor: -1.0 is not allowed; allowed: 0 or more"),
        ({"mu": 1.0, "mu_factor": 2.0}, "mu_factor: 2.0 is not allowed; allowed: one of the two, mu or mu_factor"),
        ({"window": 0}, "window: 0 is not allowed; allowed: an integer of 1 or more"),
        ({"window": 2.5}, "window: 2.5"),
        ({"sample": 0}, "sample: 0"),
        ({"inner": "divfl"}, "inner: 'divfl' is not allowed; allowed: a selector with an objective"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnionFL(**parameters)


def test_needs_what_its_inner_objective_needs() -> None:
    assert needs(UnionFL()) == {"updates"}
    assert needs(UnionFL(inner=SubTrunc())) == {"losses", "updates"}


COHORTS = [[0, 1], [2, 3], [0, 4], [5, 6], [2, 0]]


def remembered() -> Signals:
    store = SignalStore(8)
    store.observe(range(8), updates=np.eye(8))
    for round, ids in enumerate(COHORTS):
        store.observe(ids, round=round)
    return store.signals(len(COHORTS))


@given(st.sets(st.integers(1, 9)))
def test_offsets_are_the_rounds_that_are_looked_back_at(offsets: set[int]) -> None:
    """By definition: the union of S_(t - offset), of rounds that were."""
    union = set().union(*(COHORTS[5 - offset] for offset in offsets if offset <= 5))
    signals = remembered()
    assert set(np.flatnonzero(UnionFL(window=tuple(offsets)).recent(signals)).tolist()) == union
    assert UnionFL(window=offsets).recent(signals).sum() == len(union)  # type: ignore[arg-type]


def test_a_window_may_change_with_the_round() -> None:
    signals = remembered()
    changing = UnionFL(window=lambda t: {t, 1} if t % 2 else 3)
    assert set(np.flatnonzero(changing.recent(signals)).tolist()) == {0, 1, 2}  # rounds 0 and 4
    assert (UnionFL(window=lambda t: t - 2).recent(signals) == UnionFL(window=3).recent(signals)).all()


def test_the_last_rounds_are_the_same_as_their_offsets() -> None:
    signals = remembered()
    for window in range(1, 8):
        ours = UnionFL(window=tuple(range(1, window + 1)))
        assert (ours.recent(signals) == UnionFL(window=window).recent(signals)).all()


def test_offsets_need_the_history() -> None:
    signals = Signals(updates=np.eye(4), round=3)
    with pytest.raises(
        ValueError, match=r"window: \(1, 3\) needs signals.history, which is missing; take the signals"
    ):
        UnionFL(window=(1, 3)).select(signals, 2, rng=0)


@pytest.mark.parametrize("window", [(1, 0), (1.5,), "12"])
def test_refuses_offsets_that_are_no_rounds_before(window: Any) -> None:
    with pytest.raises(ValueError, match=r"window: .* is not allowed; allowed: an integer of 1 or more"):
        UnionFL(window=window)
