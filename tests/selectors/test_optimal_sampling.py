from itertools import combinations

import numpy as np
import pytest

from equifl import Signals, SignalStore
from equifl.selectors import OptimalSampling
from equifl.signals import Floats
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True

    def make(self) -> OptimalSampling:
        return OptimalSampling()


UPDATES = np.random.default_rng(0).normal(size=(7, 4)) * np.array([[9.0], [3.0], [1.0], [1.0], [0.5], [0.3], [0.1]])
SIZES = np.array([1.0, 2.0, 5.0, 1.0, 3.0, 1.0, 8.0])
SIGNALS = Signals(updates=UPDATES, sizes=SIZES)


def by_water_filling(k: int) -> Floats:
    """p_i = min(1, c u_i), with c found by bisection."""
    u = SIZES * np.linalg.norm(UPDATES, axis=1)
    low, high = 0.0, 1e9
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c * u).sum() < k else (low, c)
    return np.minimum(1, c * u)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_clients_are_drawn_with_the_probabilities_of_the_paper(k: int) -> None:
    draws, counts = 2000, np.zeros(7)
    for seed in range(draws):
        counts[OptimalSampling().select(SIGNALS, k, rng=seed)] += 1
    assert counts / draws == pytest.approx(by_water_filling(k), abs=5 * np.sqrt(0.25 / draws))


@pytest.mark.parametrize("k", [2, 4])
def test_with_its_weights_the_mean_is_unbiased_and_varies_less_than_at_random(k: int) -> None:
    """Its authors' claim: a variance between that of uniform sampling and that of full participation, which is 0."""
    target = SIZES @ UPDATES / SIZES.sum()
    ours = []
    for seed in range(2000):
        cohort = OptimalSampling().select(SIGNALS, k, rng=seed)
        ours.append(OptimalSampling().weights(SIGNALS, cohort) @ UPDATES[cohort] / 7)
    cohorts = [list(cohort) for cohort in combinations(range(7), k)]
    uniform = [7 / k * SIZES[cohort] @ UPDATES[cohort] / SIZES.sum() for cohort in cohorts]
    spread, spread_uniform = (np.square(np.array(found) - target).sum(axis=1).mean() for found in (ours, uniform))
    assert np.abs(np.mean(ours, axis=0) - target).max() < 5 * np.sqrt(spread / 2000)
    assert spread < 0.5 * spread_uniform


def test_lengths_are_enough() -> None:
    signals = random_signals(15)
    given = Signals(lengths=signals.norms, sizes=signals.sizes)
    same = Signals(updates=signals.updates, sizes=signals.sizes)
    for seed in range(5):
        expected = OptimalSampling().select(same, 4, rng=seed).tolist()
        assert OptimalSampling().select(given, 4, rng=seed).tolist() == expected


def test_says_so_if_nobody_sends_lengths() -> None:
    with pytest.warns(UserWarning, match="no client has sent lengths yet, .* needs: it chose at random"):
        OptimalSampling().select(Signals(losses=np.ones(5)), 2, rng=0)


def test_the_longest_is_certain_however_long_it_is() -> None:
    """Where size times length overflows, and where the length of the update does."""
    sizes = np.array([100.0, 1.0, 1.0, 1.0, 1.0])
    by_lengths = Signals(lengths=np.array([1e308, 1.0, 1.0, 1.0, 1.0]), sizes=sizes)
    by_updates = Signals(updates=np.array([[1e200], [1.0], [1.0], [1.0], [1.0]]) * np.array([1.0, 1.0]), sizes=sizes)
    for signals in (by_lengths, by_updates):
        for seed in range(10):
            cohort = OptimalSampling().select(signals, 2, rng=seed)
            assert 0 in cohort
            assert np.isfinite(OptimalSampling().weights(signals, cohort)).all()


def test_from_a_cold_start_weights_sum_to_all_clients_in_every_round() -> None:
    """Unknown clients come first: the ten that are drawn stand for all that are unknown, not for ten."""
    store, rng = SignalStore(100), np.random.default_rng(0)
    for round in range(10):
        signals = store.signals(round)
        cohort = OptimalSampling().select(signals, 10, rng=rng)
        assert OptimalSampling().weights(signals, cohort) == pytest.approx(10)
        store.observe(cohort, updates=rng.normal(size=(10, 3)), round=round)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_unknown_clients_are_stood_for_without_bias(k: int) -> None:
    """Three of seven are unknown. With k = 2 or 3 they take all places; with 5 they are certain, with two more."""
    lengths = np.where(np.arange(7) < 4, np.linalg.norm(UPDATES, axis=1), np.nan)
    signals, found = Signals(lengths=lengths, sizes=SIZES), []
    for seed in range(3000):
        cohort = OptimalSampling().select(signals, k, rng=seed)
        found.append(OptimalSampling().weights(signals, cohort) @ UPDATES[cohort] / 7)
    of = np.arange(7) if k > 3 else np.arange(4, 7)
    target = SIZES[of] @ UPDATES[of] / SIZES[of].sum()
    assert np.mean(found, axis=0) == pytest.approx(target, abs=5 * np.std(found, axis=0).max() / np.sqrt(3000) + 1e-9)
