from typing import Any

import numpy as np
import pytest

from equifl import Signals, SignalStore
from equifl.selectors import LabelBalance
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True

    def make(self) -> LabelBalance:
        return LabelBalance()


class TestContractQuadratic(SelectorContract):
    random = True

    def make(self) -> LabelBalance:
        return LabelBalance(measure="quadratic", rest=2)


def evenness(counts: Any, measure: str) -> float:
    """By definition, one class after the other."""
    total = sum(counts)
    if measure == "quadratic":
        return -sum((c / total - 1 / len(counts)) ** 2 for c in counts)
    return -sum(c / total * np.log(c / total) for c in counts if c > 0)


@pytest.mark.parametrize("measure", ["entropy", "quadratic"])
@pytest.mark.parametrize("seed", range(6))
def test_each_next_client_brings_the_labels_nearest_to_uniform(measure: Any, seed: int) -> None:
    signals = random_signals(10, seed=seed)
    labels = signals.label_counts
    assert labels is not None
    for draw in range(5):
        chosen = LabelBalance(measure=measure).select(signals, 6, rng=draw).tolist()
        for place in range(1, 6):
            pooled = labels[chosen[:place]].sum(axis=0)
            values = {i: evenness(pooled + labels[i], measure) for i in range(10) if i not in chosen[:place]}
            assert values[chosen[place]] == pytest.approx(max(values.values()), abs=1e-9)


def test_one_client_of_each_class_makes_a_uniform_cohort() -> None:
    """Clients of one class each, as many as cohorts have places: what Fed-CBS and FedEntOpt promise."""
    signals = Signals(label_counts=np.repeat(10 * np.eye(5), 4, axis=0))
    for seed in range(20):
        chosen = LabelBalance().select(signals, 5, rng=seed)
        assert sorted((chosen // 4).tolist()) == [0, 1, 2, 3, 4]


def test_the_first_is_drawn_at_random_and_ties_go_to_who_was_selected_less() -> None:
    store = SignalStore(12)
    store.observe(np.arange(12), label_counts=np.repeat(10 * np.eye(3), 4, axis=0))
    for round in range(16):
        store.observe(LabelBalance().select(store.signals(round), 3, rng=round), round=round)
    assert np.ptp(store.times_selected) <= 3
    firsts = {int(LabelBalance().select(store.signals(20), 3, rng=seed)[0]) for seed in range(100)}
    assert firsts == set(range(12))


def test_clients_rest_after_their_selection_as_far_as_others_suffice() -> None:
    labels = np.repeat(10 * np.eye(2), 3, axis=0)
    signals = Signals(label_counts=labels, last_selected=np.array([8, 7, -1, 8, 5, -1]), round=9)
    for seed in range(10):
        assert set(LabelBalance(rest=2).select(signals, 3, rng=seed).tolist()) == {2, 4, 5}
        assert len(LabelBalance(rest=9).select(signals, 5, rng=seed)) == 5


@pytest.mark.parametrize("seed", range(5))
def test_clients_rest_from_the_first_round_on(seed: int) -> None:
    """Clients 0 and 1 have uniform labels, and are the best choice in every round: they wait all the same."""
    store, rng = SignalStore(8), np.random.default_rng(seed)
    store.observe(np.arange(8), label_counts=np.vstack([np.full((2, 6), 5), 30 * np.eye(6)]))
    cohorts: list[set[int]] = []
    for round in range(20):
        cohort = LabelBalance(rest=3).select(store.signals(round), 2, rng=rng)
        store.observe(cohort, round=round)
        cohorts.append(set(cohort.tolist()))
        assert not cohorts[-1] & set[int]().union(*cohorts[-4:-1])


def test_if_all_rest_the_first_is_drawn_at_random() -> None:
    signals = Signals(label_counts=np.repeat(10 * np.eye(2), 3, axis=0), last_selected=np.full(6, 3), round=4)
    firsts = {int(LabelBalance(rest=5).select(signals, 2, rng=seed)[0]) for seed in range(60)}
    assert firsts == set(range(6))


def test_if_others_do_not_suffice_those_come_first_who_rested_longest() -> None:
    """Longer rest than 20 clients can have in cohorts of 6: nobody is left behind, nor selected in most rounds."""
    rng, store = np.random.default_rng(0), SignalStore(20)
    store.observe(np.arange(20), label_counts=rng.integers(1, 50, size=(20, 5)))
    for round in range(40):
        cohort = LabelBalance(rest=5).select(store.signals(round), 6, rng=rng)
        assert len(set(cohort.tolist())) == 6
        store.observe(cohort, round=round)
    assert np.ptp(store.times_selected) <= 5


def test_counts_of_any_size_are_compared() -> None:
    counts = np.array([[1e308, 0.0], [1e308, 0.0], [0.0, 1e308], [0.0, 1e308]])
    for seed in range(10):
        chosen = LabelBalance().select(Signals(label_counts=counts), 2, rng=seed)
        assert sorted((chosen // 2).tolist()) == [0, 1]


def test_says_so_if_nobody_sends_label_counts() -> None:
    with pytest.warns(
        UserWarning, match="no client has sent label_counts yet, which this selector needs: it chose at"
    ):
        LabelBalance().select(Signals(losses=np.ones(5)), 2, rng=0)


def test_refuses_bad_parameters() -> None:
    with pytest.raises(ValueError, match="measure: 'gini' is not allowed; allowed: 'entropy' or 'quadratic'"):
        LabelBalance(measure="gini")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rest: -1 is not allowed"):
        LabelBalance(rest=-1)
