from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import Reshuffle, Signals, SignalStore
from equifl.testing import SelectorContract


class TestContract(SelectorContract):
    random = True
    unknown_first = False

    def make(self) -> Reshuffle:
        return Reshuffle()


def played(n: int, ks: list[int], seed: int) -> list[list[int]]:
    """The cohorts of so many clients each, one after the other."""
    store, cohorts = SignalStore(n), []
    for round, k in enumerate(ks):
        cohort = Reshuffle().select(store.signals(round), k, rng=1000 * seed + round)
        store.observe(cohort, round=round)
        cohorts.append(sorted(cohort.tolist()))
    return cohorts


def test_an_epoch_is_a_random_permutation_cut_into_cohorts() -> None:
    """Six clients by twos: all 90 ways to cut them into three cohorts, each as often as the others."""
    draws = 1800
    seen = Counter(tuple(map(tuple, played(6, [2, 2, 2], seed))) for seed in range(draws))
    assert len(seen) == comb(6, 2) * comb(4, 2) == 90
    assert all(sorted(client for cohort in epoch for client in cohort) == list(range(6)) for epoch in seen)
    expected = draws / 90
    assert sum((count - expected) ** 2 / expected for count in seen.values()) < 89 + 5 * np.sqrt(2 * 89)


def test_the_next_epoch_has_a_new_permutation() -> None:
    """The cohort of the first round says nothing on that of the first round of the next epoch."""
    pairs = [played(4, [2, 2, 2], seed) for seed in range(1200)]
    same = np.mean([first == again for first, _, again in pairs])
    assert same == pytest.approx(1 / comb(4, 2), abs=5 * np.sqrt(1 / 6 * 5 / 6 / 1200))


@given(st.integers(1, 9), st.data())
def test_participation_differs_by_one_at_most_also_where_k_changes(n: int, data: st.DataObject) -> None:
    ks = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=12))
    times = np.zeros(n, np.int64)
    for cohort in played(n, ks, data.draw(st.integers(0, 99))):
        assert len(set(cohort)) == len(cohort)
        times[cohort] += 1
        assert times.max() - times.min() <= 1


def test_who_was_offline_when_its_turn_came_is_among_the_first_when_it_is_back() -> None:
    store, everyone = SignalStore(6), np.ones(6, bool)
    for round in range(2):
        cohort = Reshuffle().select(store.signals(round, available=np.arange(6) != 5), 2, rng=round)
        store.observe(cohort, round=round)
    third = Reshuffle().select(store.signals(2, available=everyone), 2, rng=2)
    assert 5 in third


def test_needs_no_signal() -> None:
    signals = Signals(losses=np.full(9, np.nan))
    chosen = [tuple(sorted(Reshuffle().select(signals, 3, rng=seed).tolist())) for seed in range(50)]
    assert len(set(chosen)) > 20
