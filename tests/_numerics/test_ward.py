import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from equifl._numerics.ward import ward
from equifl.signals import Floats, Ints


def apart(points: Floats) -> Floats:
    return np.asarray(np.linalg.norm(points[:, None] - points, axis=2))


def partition(labels: Ints) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@given(st.integers(2, 30), st.integers(0, 10**6))
def test_is_scipys_tree(n: int, seed: int) -> None:
    distances = apart(np.random.default_rng(seed).normal(size=(n, 3)))
    theirs = linkage(squareform(distances, checks=False), "ward")
    tree = ward(distances)
    assert np.sort(tree.heights) == pytest.approx(theirs[:, 2], rel=1e-6)
    for count in range(1, n + 1):
        assert partition(tree.clusters(count)) == partition(fcluster(theirs, count, "maxclust"))


def test_merges_what_adds_least_to_the_sum_of_squares() -> None:
    """By definition: of eight points, all pairs of clusters are tried at every step."""
    points = np.random.default_rng(3).normal(size=(8, 2))
    tree = ward(apart(points))
    clusters = [[i] for i in range(8)]

    def within(members: list[int]) -> float:
        return float(np.square(points[members] - points[members].mean(axis=0)).sum())

    for count in range(7, 0, -1):
        costs = {
            (i, j): within(a + b) - within(a) - within(b)
            for i, a in enumerate(clusters)
            for j, b in enumerate(clusters)
            if i < j
        }
        i, j = min(costs, key=lambda pair: costs[pair])
        clusters = [c for n, c in enumerate(clusters) if n not in (i, j)] + [clusters[i] + clusters[j]]
        assert partition(tree.clusters(count)) == {frozenset(c) for c in clusters}


@given(st.integers(1, 20), st.integers(0, 10**6))
def test_the_largest_subtrees_up_to_a_mass(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    masses = rng.random(n)
    most = max(masses.max(), 0.3 * masses.sum())
    tree = ward(apart(rng.normal(size=(n, 2))))
    found = partition(tree.clusters_up_to(most, masses))
    subtrees = set[frozenset[int]]().union(*(partition(tree.clusters(count)) for count in range(1, n + 1)))
    light = {tree for tree in subtrees if masses[list(tree)].sum() <= most * (1 + 1e-9)}
    assert found == {tree for tree in light if not any(tree < other for other in light)}


def test_ties_and_single_elements_end() -> None:
    assert ward(np.zeros((1, 1))).clusters(1).tolist() == [0]
    assert len(partition(ward(np.zeros((9, 9))).clusters(4))) == 4
    assert len(partition(ward(1 - np.eye(9)).clusters(4))) == 4


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_refuses_what_has_no_tree(wrong: float, dtype: type) -> None:
    """Before it starts: with nan no two elements are nearest to each other, and the search would not end."""
    distances: Floats = (1 - np.eye(4)).astype(dtype)
    with np.errstate(over="ignore"):
        distances[1, 2] = distances[2, 1] = wrong
    with pytest.raises(ValueError, match="distances: nan or a number too large is not allowed; allowed: from 0 to"):
        ward(distances)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_distances_allowed_give_the_same_tree(dtype: type) -> None:
    distances: Floats = apart(np.random.default_rng(0).normal(size=(12, 3))).astype(dtype)
    expected = ward(distances.copy()).clusters(3)
    largest = np.sqrt(np.finfo(dtype).max) / 12
    assert (
        ward((distances * (0.99 * largest / distances.max())).astype(dtype)).clusters(3).tolist() == expected.tolist()
    )
