from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equifl import Signals, SignalStore, Uniform
from equifl.selectors import Oort, Selector
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True
    unknown_first = False  # a share of them is explored

    def make(self) -> Oort:
        return Oort()


class TestContractExploiting(SelectorContract):
    random = True
    unknown_first = False

    def make(self) -> Oort:
        return Oort(explore=0.0, explore_least=0.0)


def by_hand(signals: Signals, client: int, *, alpha: float, slow: float) -> float:
    """The equation for one client, from sorted lists."""
    worth = [n * loss for n, loss in zip(signals.sizes, signals.losses, strict=True)]
    ordered = sorted(worth)
    clip = ordered[int(np.ceil(0.95 * (len(ordered) - 1)))]
    value = (min(worth[client], clip) - ordered[0]) / (clip - ordered[0])
    value += (0.1 * np.log(signals.round + 1) / (signals.last_selected[client] + 1)) ** 0.5
    assert signals.durations is not None
    durations = sorted(signals.durations)
    at = slow / 100 * (len(durations) - 1)
    limit = durations[int(at)] + (at - int(at)) * (
        durations[min(int(at) + 1, len(durations) - 1)] - durations[int(at)]
    )
    took = signals.durations[client]
    return float(value * (limit / took) ** alpha if took > limit else value)


@pytest.mark.parametrize(("round", "percentile"), [(9, 30.0), (45, 40.0)])
def test_utility_is_the_equation(round: int, percentile: float) -> None:
    """With T at the 30th percentile, and after 40 rounds at the 40th."""
    for seed in range(5):
        signals = replace(random_signals(10, seed=seed), round=round)
        expected = [by_hand(signals, client, alpha=2.0, slow=percentile) for client in range(10)]
        assert Oort().utility(signals) == pytest.approx(expected)


def test_the_worst_loss_is_the_most_useful_however_large_it_is() -> None:
    """Where size times loss overflows."""
    sizes, durations = np.array([100.0, 1.0, 1.0, 1.0, 1.0]), np.ones(5)
    signals = Signals(losses=np.array([1e308, 1.0, 1.0, 1.0, 1.0]), sizes=sizes, durations=durations)
    assert Oort().utility(signals).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    for seed in range(10):
        assert 0 in Oort(explore=0.0, explore_least=0.0).select(signals, 2, rng=seed)


def test_exploits_those_near_the_best_in_proportion_to_utility() -> None:
    """Of ten clients two are chosen, among all that have 95 % of the second best utility."""
    signals = replace(random_signals(10, seed=4), durations=None)
    with pytest.warns(UserWarning, match="no client has sent durations yet, .*: it took no account of speed"):
        utility = Oort().utility(signals)
    pool = np.flatnonzero(utility >= 0.95 * np.sort(utility)[-2])
    selector, draws, counts = Oort(explore=0.0, explore_least=0.0), 1200, np.zeros(10)
    timed = replace(signals, durations=np.ones(10))  # nobody is slower than T
    for seed in range(draws):
        counts[selector.select(timed, 1, rng=seed)] += 1
    one = np.flatnonzero(utility >= 0.95 * utility.max())
    expected = np.where(np.isin(np.arange(10), one), utility, 0) / utility[one].sum()
    assert counts / draws == pytest.approx(expected, abs=5 * np.sqrt(0.25 / draws))
    assert all(np.isin(selector.select(timed, 2, rng=seed), pool).all() for seed in range(50))


@pytest.mark.parametrize(("round", "explored"), [(0, 9), (20, 7), (200, 2)])
def test_a_falling_share_explores_clients_that_were_never_tried(round: int, explored: int) -> None:
    signals = random_signals(60, unknown=30)
    times, last = np.zeros(60, np.int64), np.full(60, -1)
    signals = replace(signals, times_selected=times, last_selected=last, round=round)
    chosen = Oort().select(signals, 10, rng=0)
    assert int((~signals.knows_loss[chosen]).sum()) == explored


@pytest.mark.parametrize(("k", "rounds"), [(1, 60), (3, 40), (4, 40)])
def test_small_cohorts_never_stop_exploring(k: int, rounds: int) -> None:
    """The share is rounded up, as in its authors' code: rounded down it is nobody."""
    store, losses, rng = SignalStore(40), np.linspace(1, 2, 40), np.random.default_rng(0)
    for round in range(rounds):
        cohort = Oort().select(store.signals(round), k, rng=rng)
        store.observe(cohort, round=round, losses=losses[cohort], durations=np.ones(k))
    assert (store.times_selected > 0).sum() >= min(40, rounds)


def test_rounds_are_shorter_than_at_random_where_clients_differ_in_speed() -> None:
    """The ordering that its authors publish: less time a round, at losses that are no lower."""

    def played(selector: Selector) -> tuple[float, float]:
        rng = np.random.default_rng(0)
        seconds, losses = rng.lognormal(sigma=1.0, size=50), rng.exponential(size=50)
        store, took, served = SignalStore(50), [], []
        for round in range(60):
            cohort = selector.select(store.signals(round), 5, rng=rng)
            store.observe(cohort, round=round, losses=losses[cohort], durations=seconds[cohort])
            took.append(seconds[cohort].max())
            served.append(losses[cohort].mean())
        return float(np.mean(took[20:])), float(np.mean(served[20:]))

    ours, random = played(Oort()), played(Uniform())
    assert ours[0] < 0.7 * random[0]
    assert ours[1] > random[1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": -1.0}, "alpha: -1.0 is not allowed; allowed: 0 or more"),
        ({"explore": 1.5}, "explore: 1.5 is not allowed; allowed: from 0 to 1"),
        ({"clip": 0.0}, "clip: 0.0 is not allowed; allowed: above 0, up to 100"),
        ({"pace": 0}, "pace: 0 is not allowed"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Oort(**parameters)
