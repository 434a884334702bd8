import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equifl import Signals
from equifl._numerics import centring, distances, threads
from equifl._numerics.distances import Distances, UpdateDistances, centred_products
from equifl.maximizers import greedy
from equifl.objectives import FacilityLocation
from equifl.signals import Floats


def exact(updates: Floats) -> Floats:
    wide = updates.astype(np.longdouble)
    return np.sqrt(((wide[:, None] - wide) ** 2).sum(axis=2)).astype(np.float64)


def drifted(rng: np.random.Generator, n: int = 40, d: int = 200, common: float = 1e4) -> Floats:
    """Updates that share a large common part: where float32 Gram matrices break."""
    return (common * rng.normal(size=d) + rng.normal(size=(n, d))).astype(np.float32)


def test_a_large_common_part_does_not_matter() -> None:
    updates = drifted(np.random.default_rng(0))
    truth = exact(updates)
    off_diagonal = ~np.eye(len(truth), dtype=bool)
    error = np.abs(UpdateDistances(updates).matrix() - truth)[off_diagonal] / truth[off_diagonal]
    assert error.max() < 3e-5
    q = np.einsum("ij,ij->i", updates, updates)
    raw = np.sqrt(np.maximum(q[:, None] + q - 2 * updates @ updates.T, 0))
    assert (np.abs(raw - truth)[off_diagonal] / truth[off_diagonal]).max() > 1  # what this guards against


def test_near_twins_are_distinguished() -> None:
    rng = np.random.default_rng(1)
    updates = rng.normal(size=(30, 50)).astype(np.float32)
    updates[1] = updates[0] + np.float32(1e-4) * rng.normal(size=50).astype(np.float32)
    updates[2] = updates[0]
    found = UpdateDistances(updates).matrix()
    assert found[0, 1] == pytest.approx(exact(updates)[0, 1], rel=1e-4)
    assert found[0, 2] == 0


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([np.float16, np.float32, np.float64]), st.floats(-30, 36))
def test_any_type_and_any_magnitude(seed: int, dtype: Any, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    if dtype is np.float16:
        exponent = exponent / 10  # its exponent has three bits less
    updates = (10.0**exponent * rng.normal(size=(7, 5))).astype(dtype)
    found = UpdateDistances(updates)
    np.testing.assert_allclose(found.unit * found.matrix().astype(np.float64), exact(updates), rtol=1e-4)


def test_rows_and_matrix_agree_and_the_matrix_is_symmetric() -> None:
    updates = drifted(np.random.default_rng(2), n=600, d=20)
    found = UpdateDistances(updates)
    matrix = found.matrix(block=256)
    assert (matrix == matrix.T).all()
    assert (np.diagonal(matrix) == 0).all()
    ids = np.array([5, 599, 0, 300])
    np.testing.assert_allclose(found.rows(ids), matrix[ids], rtol=1e-4, atol=1e-5)


def test_farthest_is_a_bound() -> None:
    updates = drifted(np.random.default_rng(3))
    found = UpdateDistances(updates)
    assert (found.farthest() * (1 + 1e-6) >= found.matrix().max(axis=0)).all()


MANY = 1000
MATRIX = 4 * MANY**2  # bytes


def gains_and_bytes(G: FacilityLocation, ids: Any) -> tuple[Any, int]:
    """The gains of these clients, and the most memory that was taken for them."""
    state = G.init()
    tracemalloc.start()
    try:
        return G.gains(state, np.arange(MANY)[ids]), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_few_rows_never_make_the_matrix() -> None:
    G = FacilityLocation(Signals(updates=np.random.default_rng(0).normal(size=(MANY, 5))))
    assert gains_and_bytes(G, [3, 5, 7])[1] < MATRIX / 10


def test_many_rows_make_the_matrix_once() -> None:
    G = FacilityLocation(Signals(updates=np.random.default_rng(0).normal(size=(MANY, 5))))
    (first, making), (second, having) = (gains_and_bytes(G, slice(None)) for _ in range(2))
    assert making > MATRIX
    assert having < MATRIX / 2
    np.testing.assert_array_equal(first, second)


def test_beyond_the_memory_limit_rows_are_streamed() -> None:
    updates = np.random.default_rng(0).normal(size=(MANY, 5))
    limit = 4 * MANY * 32
    G = FacilityLocation(Signals(updates=updates), memory_limit=limit)
    streamed, taken = gains_and_bytes(G, slice(None))
    assert taken < MATRIX / 2
    kept = FacilityLocation(Signals(distances=exact(updates).astype(np.float32)))
    offset = float(G.init().sum() - kept.init().sum())  # the bound on the largest distance, and the distance
    np.testing.assert_allclose(streamed, kept.gains(kept.init(), np.arange(MANY)) + offset, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("magnitude", [1.0, 1e-3])
def test_without_a_copy_and_in_chunks_distances_are_the_same(
    dtype: Any, magnitude: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(centring, "_SHARE_BYTES", 4 * 20 * 100)
    updates = (magnitude * np.random.default_rng(0).normal(size=(1300, 20))).astype(dtype)
    updates[7] = updates[700]
    ids = np.flatnonzero(np.random.default_rng(1).random(1300) < 0.9)
    rows = np.array([0, 7, 650, len(ids) - 1])
    whole = UpdateDistances(updates[ids]).rows(rows)
    monkeypatch.setattr(distances, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(distances, "_CHUNK_CLIENTS", 500)
    parts = UpdateDistances(updates, ids, copy_limit=0).rows(rows)
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-6 * magnitude)
    np.testing.assert_allclose(parts, exact(updates[ids])[rows], rtol=1e-4, atol=1e-6 * magnitude)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows of distances were computed: the cost of a selection."""
    counts = {"rows": 0}
    rows = UpdateDistances.rows

    def counting_rows(self: UpdateDistances, ids: Any) -> Any:
        counts["rows"] += len(ids)
        return rows(self, ids)

    monkeypatch.setattr(UpdateDistances, "rows", counting_rows)
    return counts


def test_what_is_foreseen_is_computed_once(counted: dict[str, int]) -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(400, 5)))
    steps = [np.array([9, 3]), np.array([3, 7]), np.array([1, 2])]
    G, plain = FacilityLocation(signals), FacilityLocation(signals)
    G.foresee(steps)
    assert counted["rows"] == 5
    for step in steps:
        G.foresee(iter([step]))  # kept already
        np.testing.assert_allclose(G.gains(G.init(), step), plain.gains(plain.init(), step), rtol=1e-6)
    G.update(G.init(), 7)
    assert counted["rows"] == 5 + 6


def test_no_more_is_foreseen_than_half_of_the_memory_limit_holds(counted: dict[str, int]) -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(400, 5)))
    G = FacilityLocation(signals, memory_limit=2 * 4 * 400 * 5)
    steps = [np.array([9, 3]), np.array([4, 7]), np.array([1, 2])]
    G.foresee(steps)
    assert counted["rows"] == 4
    G.foresee([np.arange(6)])  # not even one step
    assert counted["rows"] == 4
    G.gains(G.init(), np.arange(6))
    assert counted["rows"] == 10


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals(distances=exact(np.random.default_rng(0).normal(size=(300, 4))))
    G = FacilityLocation(signals)
    alone = G.gains(G.init(), np.arange(300))
    monkeypatch.setattr(threads, "_WORTH_THREADS", 1)
    monkeypatch.setattr(threads, "_TILE_BYTES", 4096)
    for cores in (2, 3, 7):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        assert G.gains(G.init(), np.arange(300)).tolist() == alone.tolist()


def test_mean_distance() -> None:
    updates = np.random.default_rng(0).normal(size=(50, 4))
    assert Distances(Signals(updates=updates)).mean() == pytest.approx(exact(updates).mean(), rel=1e-5)
    many = np.random.default_rng(0).normal(size=(3000, 4))
    assert Distances(Signals(updates=many)).mean() == pytest.approx(exact(many).mean(), rel=0.01)


def test_gram_from_updates_and_from_distances_agree() -> None:
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(12, 4)) + 100
    updates[3] = np.nan
    ids = np.array([5, 0, 11])
    centred = updates[ids] - np.nanmean(updates, axis=0)
    expected = centred @ centred.T
    np.testing.assert_allclose(centred_products(Signals(updates=updates))(ids, ids), expected, rtol=1e-6, atol=1e-6)
    given_ones = Signals(distances=exact(updates))
    np.testing.assert_allclose(centred_products(given_ones)(ids, ids), expected, rtol=1e-6, atol=1e-6)
    some = centred_products(Signals(updates=updates))(ids, ids[:1])
    np.testing.assert_allclose(some, expected[:, :1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(centred_products(given_ones)(ids, ids[:1]), expected[:, :1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("magnitude", [1e31, 1e37, 1e-40, 1e-300, 1e300])
def test_magnitudes_that_float32_cannot_hold_are_scaled(magnitude: float) -> None:
    updates = np.random.default_rng(0).normal(size=(9, 4))
    found = UpdateDistances(magnitude * updates)
    np.testing.assert_allclose(found.unit / magnitude * found.matrix().astype(np.float64), exact(updates), rtol=1e-5)


def test_tiny_differences_beside_a_large_common_part_do_not_vanish() -> None:
    updates = np.zeros((6, 2), np.float32)
    updates[:, 0], updates[:, 1] = 1e10, 1e-35 * np.arange(6)
    found = UpdateDistances(updates)
    np.testing.assert_allclose(found.unit * found.matrix().astype(np.float64), exact(updates), rtol=1e-5)
    products = centred_products(Signals(updates=updates))(np.arange(6), np.arange(6))
    assert np.corrcoef(products[0], 2.5 - np.arange(6))[0, 1] == pytest.approx(1)


def test_narrow_distances_are_added_up_in_wider_numbers() -> None:
    updates = np.random.default_rng(0).normal(size=(60, 4))
    wide = 1000 * exact(updates)
    narrow = np.minimum(wide, wide.T).astype(np.float16)
    chosen = [greedy(FacilityLocation(Signals(distances=d)), 5).tolist() for d in (narrow, narrow.astype(np.float64))]
    assert chosen[0] == chosen[1]
