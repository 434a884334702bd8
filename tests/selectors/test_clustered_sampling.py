import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from equifl import Signals
from equifl.selectors import ClusteredSampling
from equifl.signals import Floats
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True

    def make(self) -> ClusteredSampling:
        return ClusteredSampling()


def cohorts_of_the_paper(updates: Floats, sizes: Floats, k: int) -> set[frozenset[int]]:
    """All that Algorithm 2 may draw, by scipy and by hand, a poured client in any urn; ties either way."""
    unit = updates / np.linalg.norm(updates, axis=1)[:, None]
    angle = np.arccos(np.clip(unit @ unit.T, -1, 1))
    np.fill_diagonal(angle, 0)
    tree = linkage(squareform(angle, checks=False), "ward")
    shares = sizes / sizes.sum()
    mass = shares.tolist()
    for a, b, *_ in tree:
        mass.append(mass[int(a)] + mass[int(b)])
    heights = np.column_stack([tree[:, :2], mass[len(sizes) :], tree[:, 3]])
    labels = fcluster(heights, 1 / k * (1 + 1e-9), "distance")
    clusters = [set(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())]
    found = set()
    for kept in combinations(clusters, k):
        others = [cluster for cluster in clusters if cluster not in kept]
        least = min(shares[list(cluster)].sum() for cluster in kept)
        if all(shares[list(cluster)].sum() <= least + 1e-9 for cluster in others):
            poured = set().union(*others)
            found |= {frozenset(pick) for pick in product(*(urn | poured for urn in kept)) if len(set(pick)) == k}
    return found


@pytest.mark.parametrize("seed", range(8))
def test_one_client_of_each_urn(seed: int) -> None:
    """Clients of one size, so that none lies in two urns: one of each large cluster, or a poured one in its place."""
    for n, k in ((8, 2), (9, 3), (8, 4), (10, 5)):
        signals = replace(random_signals(n, seed=seed), sizes=np.full(n, 7.0))
        assert signals.updates is not None
        possible = cohorts_of_the_paper(signals.updates, signals.sizes, k)
        for draw in range(30):
            assert frozenset(ClusteredSampling().select(signals, k, rng=draw).tolist()) in possible


@pytest.mark.parametrize("k", [1, 2, 4])
def test_everybody_is_drawn_in_proportion_to_size_but_for_those_who_are_certain(k: int) -> None:
    signals = replace(random_signals(8), sizes=np.array([1.0, 2, 3, 4, 5, 6, 9, 30]))
    draws = 1200
    counts = np.zeros(8)
    for draw in range(draws):
        counts[ClusteredSampling().select(signals, k, rng=draw)] += 1
    expected = signals.sizes / 60 if k == 1 else np.append((k - 1) * signals.sizes[:7] / 30, 1.0)
    assert counts / draws == pytest.approx(expected, abs=5 * np.sqrt(0.25 / draws))


@pytest.mark.parametrize("sizes", [[1.0, 2, 3, 4, 5, 6, 9, 30], [1.0] * 8])
def test_with_its_weights_the_mean_is_unbiased_and_varies_less_than_by_size_alone(sizes: list[float]) -> None:
    """sum_j weights_j u_j / N, over many draws: the mean by size; clients of four kinds vary less when clustered."""
    rng = np.random.default_rng(0)
    updates = np.repeat(10 * np.eye(4), 2, axis=0) + rng.normal(size=(8, 4))
    signals = Signals(updates=updates, sizes=np.array(sizes))
    shares = signals.sizes / signals.sizes.sum()
    target = shares @ updates
    ours, plain = [], []
    for draw in range(1200):
        cohort = ClusteredSampling().select(signals, 4, rng=draw)
        weights = ClusteredSampling().weights(signals, cohort)
        assert weights.sum() == pytest.approx(8)
        ours.append(weights @ updates[cohort] / 8)
        plain.append(updates[rng.choice(8, 4, p=shares)].mean(axis=0))  # MD sampling
    spread, spread_plain = (np.square(np.array(found) - target).sum(axis=1).mean() for found in (ours, plain))
    assert np.abs(np.mean(ours, axis=0) - target).max() < 5 * np.sqrt(spread / 1200)
    assert spread < 0.3 * spread_plain


def test_distances_with_lengths_are_as_good_as_updates_and_without_it_says_so() -> None:
    signals = random_signals(15)
    assert signals.updates is not None
    apart = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
    given = replace(signals, updates=None, distances=apart, lengths=np.linalg.norm(signals.updates, axis=1))
    for draw in range(10):
        expected = ClusteredSampling().select(signals, 4, rng=draw).tolist()
        assert ClusteredSampling().select(given, 4, rng=draw).tolist() == expected
    with pytest.warns(UserWarning, match="no client has sent lengths yet, .*: it took the angles between"):
        ClusteredSampling().select(replace(given, lengths=None), 4, rng=0)


def test_huge_updates_have_the_angles_of_their_directions() -> None:
    """Beyond float32, where a cast makes them infinite."""
    signals = random_signals(12)
    assert signals.updates is not None
    scales = np.array([1e39, 1e200, *[1.0] * 10])[:, None]
    for draw in range(10):
        expected = ClusteredSampling().select(signals, 4, rng=draw).tolist()
        huge = replace(signals, updates=signals.updates.astype(np.float64) * scales)
        assert ClusteredSampling().select(huge, 4, rng=draw).tolist() == expected


def test_lengths_of_extreme_ratios_end() -> None:
    apart = 1 - np.eye(9)
    lengths = np.append([1e200, 1e-200], np.ones(7))
    apart[0, 1:] = apart[1:, 0] = 1e200
    assert len(ClusteredSampling().select(Signals(distances=apart, lengths=lengths), 3, rng=0)) == 3


def test_the_docstring_says_what_was_measured() -> None:
    found = Path(__file__).parents[2] / "benchmarks" / "results" / "selectors.json"
    rows = [row for row in json.loads(found.read_text())["rows"] if row["name"] == "clustered_sampling"]
    assert {row["n"] for row in rows} == {10_000}
    longest = max(row["seconds"] for row in rows)
    largest = max(row["bytes"] for row in rows) / 2**20
    assert f"10,000 clients took {longest:.1f} s and {largest:.0f} MiB" in (ClusteredSampling.__doc__ or "")
