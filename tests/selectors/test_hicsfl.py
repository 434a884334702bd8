from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.stats import entropy, spearmanr

from equifl import Signals, SignalStore, simulate
from equifl.selectors import HiCSFL
from equifl.signals import Floats, Ints
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True
    draws = 200

    def make(self) -> HiCSFL:
        return HiCSFL(temperature=1.0, gamma=1.0)


def by_scipy(signals: Signals, k: int, temperature: float) -> tuple[Floats, Ints]:
    """Entropies and clusters, written out."""
    assert signals.bias_updates is not None
    change = -signals.bias_updates / temperature
    found = np.array([entropy(np.exp(row) / np.exp(row).sum()) for row in change])
    unit = change / np.linalg.norm(change, axis=1)[:, None]
    apart = np.arccos(np.clip(unit @ unit.T, -1, 1)) + 10 * np.abs(found[:, None] - found)
    np.fill_diagonal(apart, 0)
    return found, fcluster(linkage(squareform(apart, checks=False), "ward"), k, "maxclust")


def chances(entropies: Floats, clusters: Ints, sizes: Floats, gamma: float, k: int) -> Floats:
    """(N,) of selection, by all sequences of draws."""
    found = np.zeros(len(sizes))

    def draw(chosen: list[int], chance: float) -> None:
        if len(chosen) == k:
            found[chosen] += chance
            return
        left = [i for i in range(len(sizes)) if i not in chosen]
        weight = {c: np.exp(gamma * entropies[clusters == c].mean()) for c in {clusters[i] for i in left}}
        for i in left:
            inside = sum(sizes[j] for j in left if clusters[j] == clusters[i])
            draw([*chosen, i], chance * weight[clusters[i]] / sum(weight.values()) * sizes[i] / inside)

    draw([], 1.0)
    return found


@pytest.mark.parametrize(("round", "gamma"), [(0, 3.0), (5, 1.5), (12, 0.0)])
def test_clients_are_drawn_by_the_rule(round: int, gamma: float) -> None:
    """With 10 rounds in all, gamma is half after 5, and 0 in the end."""
    signals = replace(random_signals(7), round=round, last_selected=np.full(7, -1))
    found, clusters = by_scipy(signals, 3, 1.0)
    selector, draws, counts = HiCSFL(temperature=1.0, gamma=3.0, rounds=10), 1200, np.zeros(7)
    assert selector.entropies(signals) == pytest.approx(found)
    for seed in range(draws):
        counts[selector.select(signals, 3, rng=seed)] += 1
    expected = chances(found, clusters, signals.sizes, gamma, 3)
    assert counts / draws == pytest.approx(expected, abs=5 * np.sqrt(0.25 / draws))


SEEN: list[Signals] = []


class Look(HiCSFL):
    """Selects everybody, and shows what is known."""

    needs = ("bias_updates", "label_counts")

    def select(self, signals: Signals, k: int, *, rng: Any) -> Ints:
        SEEN.append(signals)
        return np.arange(signals.n)


def test_the_entropy_of_labels_is_seen_in_the_bias() -> None:
    """What its authors show: clients come out in the order of their label entropies, from a round of training."""
    SEEN.clear()
    settings: dict[str, Any] = {"rounds": 2, "clients": 20, "per_round": 20, "seeds": 1, "model": "logistic"}
    look = {"look": {"class": "tests.selectors.test_hicsfl:Look"}}
    simulate(**settings, partition={"kind": "dirichlet", "alpha": 0.2}, selectors=look)
    assert SEEN[1].label_counts is not None
    truth = entropy(SEEN[1].label_counts, axis=1)
    assert spearmanr(truth, HiCSFL().entropies(SEEN[1])).statistic > 0.7


def test_balanced_clients_are_preferred_at_first() -> None:
    rng = np.random.default_rng(0)
    skewed = -np.eye(4)[rng.integers(4, size=15)] + 0.01 * rng.normal(size=(15, 4))
    even = 0.01 * rng.normal(size=(5, 4))
    signals = Signals(bias_updates=np.concatenate([skewed, even]))
    chosen = np.concatenate([HiCSFL().select(signals, 5, rng=seed) for seed in range(50)])
    assert (chosen >= 15).mean() > 0.6


@pytest.mark.parametrize("huge", [[1e39] * 3, [1e308] * 3, [1e308, -1e308, 0.0]])
def test_a_huge_report_changes_neither_the_others_nor_the_end(huge: list[float]) -> None:
    """Beyond float32, and where sums and quotients overflow."""
    bias = np.random.default_rng(0).normal(size=(20, 3))
    bias[0] = huge
    store = SignalStore(20, guard=True)
    store.observe(np.arange(20), bias_updates=bias, round=0)
    signals = store.signals(1)
    assert len(set(HiCSFL().select(signals, 4, rng=0).tolist())) == 4
    plain = Signals(bias_updates=bias[1:])
    assert HiCSFL().entropies(Signals(bias_updates=bias))[1:].tolist() == HiCSFL().entropies(plain).tolist()
    assert np.isfinite(HiCSFL().entropies(Signals(bias_updates=bias))).all()


def test_says_so_if_nobody_sends_bias_updates() -> None:
    with pytest.warns(UserWarning, match="no client has sent bias_updates yet, .* needs: it chose at random"):
        HiCSFL().select(Signals(losses=np.ones(5)), 2, rng=0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": 0.0}, "temperature: 0.0 is not allowed; allowed: above 0"),
        ({"lam": -1.0}, "lam: -1.0 is not allowed; allowed: 0 or more"),
        ({"rounds": 0}, "rounds: 0 is not allowed"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HiCSFL(**parameters)
