from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from equifl import Signals, SignalStore
from equifl.metrics import gini
from equifl.selectors import FedGS
from equifl.signals import Floats
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    def make(self) -> FedGS:
        return FedGS()


def objective(signals: Signals, cohort: Any, alpha: float) -> float:
    """The equation, written out; paths by scipy."""
    assert signals.updates is not None
    unit = signals.updates / np.linalg.norm(signals.updates, axis=1)[:, None]
    similar = unit @ unit.T
    edges = np.where(similar > 0.01, np.exp(-(similar**2) / 0.1), 0.0)
    np.fill_diagonal(edges, 0.0)
    paths = shortest_path(edges, directed=False)
    paths[np.isinf(paths)] = paths[np.isfinite(paths)].max()
    n, k, v = signals.n, len(cohort), signals.times_selected
    spread = sum(paths[i, j] for i, j in combinations(cohort, 2))
    return float(alpha * 2 / (k * (k - 1)) * spread - sum(2 * (v[i] - v.mean() - k / n) + 1 for i in cohort) / (n - 1))


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_no_swap_is_left_that_would_help_and_most_cohorts_are_the_best(alpha: float) -> None:
    best = []
    for seed in range(20):
        signals = random_signals(9, seed=seed)
        chosen = FedGS(alpha=alpha).select(signals, 4, rng=0).tolist()
        value = objective(signals, chosen, alpha)
        for leaves in chosen:
            for enters in set(range(9)) - set(chosen):
                other = [enters if client == leaves else client for client in chosen]
                assert objective(signals, other, alpha) <= value + 1e-6
        best.append(max(objective(signals, s, alpha) for s in combinations(range(9), 4)) <= value + 1e-6)
    assert np.mean(best) >= 0.8


def test_counts_stay_equal_and_with_alpha_0_exactly() -> None:
    """With a third online, as its authors report against sampling at random."""

    def played(alpha: float, online: float) -> Floats:
        rng = np.random.default_rng(0)
        store = SignalStore(40)
        store.observe(np.arange(40), updates=rng.normal(size=(40, 5)))
        for round in range(80):
            available = rng.random(40) < online
            available[rng.integers(40)] = True
            k = min(5, int(available.sum()))
            cohort = FedGS(alpha=alpha).select(store.signals(round, available=available), k, rng=rng)
            store.observe(cohort, round=round)
        return np.asarray(store.times_selected)

    assert np.ptp(played(0.0, 1.0)) <= 1
    assert gini(played(0.1, 0.35)) < 0.1


def test_one_of_each_kind() -> None:
    """Three kinds at right angles, and one client of each."""
    kinds = np.repeat(np.eye(3), 3, axis=0) + 0.05 * np.abs(np.random.default_rng(0).normal(size=(9, 3)))
    signals = Signals(updates=kinds)
    assert sorted((FedGS().select(signals, 3, rng=0) // 3).tolist()) == [0, 1, 2]


def test_clients_that_no_path_joins() -> None:
    signals = Signals(updates=np.eye(4))
    assert FedGS().paths(signals, np.arange(4)).tolist() == (1 - np.eye(4)).tolist()
    assert len(FedGS().select(signals, 2, rng=0)) == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": -1.0}, "alpha: -1.0 is not allowed; allowed: 0 or more"),
        ({"threshold": 2.0}, "threshold: 2.0 is not allowed; allowed: from 0 to 1"),
        ({"spread": 0.0}, "spread: 0.0 is not allowed; allowed: above 0"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FedGS(**parameters)
