from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import PowerOfChoice, Signals, SignalStore, SubTrunc
from equifl.guard import LONGEST, SHARE, guarded, over_share, shortened_distances
from equifl.signals import Floats
from equifl.sketch import CountSketch

WORDS = np.random.default_rng(0).normal(size=(40, 5))


def pairwise(updates: Floats) -> Floats:
    return np.asarray(np.linalg.norm(updates[:, None] - updates, axis=2))


def norms(updates: Floats | None) -> Floats:
    assert updates is not None
    return np.asarray(np.linalg.norm(updates, axis=1))


@given(factor=st.floats(4, 1e30), liars=st.integers(1, 19))
def test_a_length_that_is_too_long_counts_as_typical_and_the_direction_stays(factor: float, liars: int) -> None:
    honest = WORDS / norms(WORDS)[:, None]
    sent = honest.copy()
    sent[:liars] *= factor
    seen = guarded(Signals(updates=sent)).updates
    assert seen is not None
    np.testing.assert_allclose(seen, honest, rtol=1e-6)


def test_honest_updates_up_to_the_limit_are_passed_on_as_they_are() -> None:
    sent = WORDS / norms(WORDS)[:, None]
    sent[:5] *= 0.99 * LONGEST
    sent[5:9] *= 1e-3
    signals = Signals(updates=sent)
    assert np.shares_memory(guarded(signals).updates, signals.updates)


def test_lengths_are_compared_among_updates_of_the_same_age() -> None:
    """Early updates are longer than late ones: 20 early ones of length 9 among 20 late ones of length 1."""
    updates = WORDS / norms(WORDS)[:, None]
    updates[:20] *= 9
    last = np.where(np.arange(40) < 20, 0, 7)
    liar = updates.copy()
    liar[30] *= 9  # as long as the early ones, but late
    seen = norms(guarded(Signals(updates=liar, last_selected=last, round=8)).updates)
    np.testing.assert_allclose(seen, norms(updates))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shortened_updates_keep_their_type(dtype: Any) -> None:
    sent = WORDS.astype(dtype)
    sent[3] *= 50
    seen = guarded(Signals(updates=sent)).updates
    assert seen is not None
    assert seen.dtype == dtype


@given(factor=st.floats(3, 1e4), liars=st.integers(1, 15))
def test_distances_with_lengths_are_limited_as_updates_are(factor: float, liars: int) -> None:
    sent = WORDS.copy()
    sent[:liars] *= factor
    short = guarded(Signals(updates=sent)).updates
    assert short is not None
    seen = guarded(Signals(distances=pairwise(sent), lengths=norms(sent)))
    assert seen.distances is not None
    np.testing.assert_allclose(seen.distances, pairwise(short), rtol=1e-5, atol=1e-4)
    assert seen.lengths is not None
    np.testing.assert_allclose(seen.lengths, norms(short))


def test_distances_in_float32_that_lost_the_angle_stay_possible() -> None:
    sent = WORDS.copy()
    sent[:4] *= 1e9
    seen = guarded(Signals(distances=pairwise(sent).astype(np.float32), lengths=norms(sent))).distances
    assert seen is not None
    short = norms(guarded(Signals(updates=sent)).updates)
    assert (seen[:4] <= 1.001 * (short[:4, None] + short)).all()


def test_unknown_clients_stay_unknown() -> None:
    sent = WORDS.copy()
    sent[2], sent[7] = 1e6, np.nan
    losses = np.where(np.arange(40) == 7, np.nan, 1.0)
    for signals in (
        Signals(updates=sent, losses=losses),
        Signals(distances=pairwise(sent), lengths=norms(sent), losses=losses),
    ):
        seen = guarded(signals)
        assert np.flatnonzero(~seen.knows_update).tolist() == [7]
        assert np.flatnonzero(~seen.knows_loss).tolist() == [7]
    nothing = Signals(losses=np.full(3, np.nan))
    assert np.isnan(guarded(nothing).losses).all()


def test_of_distances_without_lengths_nothing_is_known() -> None:
    distances = pairwise(WORDS)
    seen = guarded(Signals(distances=distances)).distances
    np.testing.assert_array_equal(seen, distances)


def selected_often(client: int, times: int, *, others: int = 2, n: int = 10) -> dict[str, Any]:
    history = [(t, i) for i in range(n) for t in range(times if i == client else others)]
    return {"history": history, "round": max(times, others)}


def test_who_had_more_than_its_share_is_not_taken_at_its_word() -> None:
    losses, sizes = np.linspace(1, 2, 10), np.linspace(100, 900, 10)
    updates = WORDS[:10] / norms(WORDS[:10])[:, None] * np.where(np.arange(10) == 9, 1.9, 1)[:, None]
    believed = guarded(Signals(losses=losses, sizes=sizes, updates=updates, **selected_often(9, 4)))
    assert believed.losses[9] == 2
    assert believed.sizes[9] == 900
    doubted = guarded(Signals(losses=losses, sizes=sizes, updates=updates, **selected_often(9, 5)))
    assert doubted.losses[9] == 1
    assert doubted.sizes[9] == 100
    assert norms(doubted.updates)[9] == pytest.approx(1)
    np.testing.assert_array_equal(doubted.losses[:9], losses[:9])


@given(starved=st.integers(0, 25), liars=st.integers(1, 10), rounds=st.integers(1, 40))
def test_a_claim_buys_at_most_so_many_times_the_mean_and_two_seats(starved: int, liars: int, rounds: int) -> None:
    """Also where many honest clients are never selected, so that the median client has more than the mean."""
    n, k = 40, 5
    rng = np.random.default_rng([starved, liars, rounds])
    counts, history = np.zeros(n, int), list[tuple[int, int]]()
    for t in range(rounds):
        losses = np.concatenate([np.full(starved, 1.0), rng.uniform(2, 3, n - liars - starved), np.full(liars, 1e6)])
        signals = Signals(losses=losses, history=np.array(history).reshape(-1, 2), round=t)
        cohort = np.argsort(-guarded(signals).losses, kind="stable")[:k]
        counts[cohort] += 1
        history += [(t, int(i)) for i in cohort]
    assert counts[-liars:].max() <= SHARE * rounds * k / n + 2


def is_over(history: list[tuple[int, int]], round: int, **options: Any) -> bool:
    """Whether client 9 of ten had more than its share."""
    signals = Signals(losses=np.ones(10), history=np.array(history), round=round, **options)
    return bool(over_share(signals, np.ones(10))[9])


def test_a_share_is_counted_since_a_client_joined_and_over_the_last_turns() -> None:
    late = {"joined": np.where(np.arange(10) == 9, 8, 0)}
    often = [(t, i) for i in range(9) for t in range(10)] + [(8, 9), (9, 9)]
    assert not is_over(often, 10, **late)
    crowd = [(t, i) for i in range(9) for t in range(2)] + [(8, 9), (9, 9)]
    assert is_over(crowd, 10, **late)
    old = [(t, 9) for t in range(300)] + [(t, t % 9) for t in range(300, 500)]
    assert not is_over(old, 500)
    assert is_over(old[:300], 300)


def test_without_a_history_all_selections_count() -> None:
    times = np.array([2, 2, 2, 2, 9])
    signals = Signals(losses=np.ones(5), times_selected=times, last_selected=times, round=10)
    assert over_share(signals, np.ones(5)).tolist() == [False] * 4 + [True]
    assert SHARE * 3.4 + 1 < 9


def test_sizes_that_the_server_gave_are_no_claims() -> None:
    sizes = np.array([600.0, 500.0, 700.0, 1e12, 500.0])
    store = SignalStore(5, guard=True, sizes=sizes)
    assert store.signals(0).sizes.tolist() == sizes.tolist()
    store.observe([0], sizes=[1e13])
    assert store.signals(0).sizes.tolist() == [1e13, *sizes[1:]]  # the only claim: there is nothing to compare it with
    store.forget([3])
    assert store.signals(0).sizes[3] == 1
    for round in range(20):
        store.observe([2], round=round)
    assert store.signals(20).sizes[2] == 700


def test_absurd_sizes_are_lowered() -> None:
    store = SignalStore(5, guard=True)
    store.observe([0, 1, 2, 3], sizes=[600, 500, 700, 1e12])
    assert store.signals(0).sizes.tolist() == [600, 500, 700, 700, 1]


def test_a_store_without_a_guard_changes_nothing() -> None:
    store = SignalStore(5)
    losses, sizes = [1.0, 2.0, 3.0, 4.0, 1e9], [1.0, 2.0, 3.0, 4.0, 1e9]
    updates = (np.eye(5) * np.array([1, 1, 1, 1, 900.0])[:, None]).astype(np.float32)
    store.observe(range(5), losses=losses, sizes=sizes, updates=updates)
    for round in range(9):
        store.observe([4], round=round)
    seen = store.signals(9)
    assert seen.losses.tolist() == losses
    assert seen.sizes.tolist() == sizes
    np.testing.assert_array_equal(seen.updates, updates)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_updates_in_a_memory_map_are_shortened_and_the_file_stays(tmp_path: Any, dtype: str) -> None:
    sent = np.random.default_rng(0).normal(size=(40, 4))
    sent[[3, 30]] *= 50
    sketch, file = CountSketch(length=4), tmp_path / "sketches"
    stores = [SignalStore(40, guard=True, sketch=sketch, dtype=dtype, memory_map=path) for path in (file, None)]
    for store in stores:
        store.observe(range(40), updates=sent)
        store.observe(range(5), round=0)  # updates of two ages
    before = file.read_bytes()
    mapped, plain = (store.signals(1).updates for store in stores)
    np.testing.assert_array_equal(mapped, plain)
    assert norms(mapped).max() < 2 * LONGEST * np.median(norms(mapped))
    assert file.read_bytes() == before
    stores[0].observe([3], updates=sent[:1])
    np.testing.assert_array_equal(norms(stores[0].signals(1).updates)[3], norms(sent[:1].astype(dtype)))


@pytest.mark.parametrize("selector", [PowerOfChoice(candidates=20), SubTrunc(lam=1.0, b=1e12, phi="identity")])
def test_a_store_that_clips_lets_no_lie_win(selector: PowerOfChoice | SubTrunc) -> None:
    rng = np.random.default_rng(0)
    updates, honest = rng.normal(size=(20, 5)), rng.uniform(1, 2, 20)

    def cohort(loss: float, *, guard: bool) -> list[int]:
        store = SignalStore(20, guard=guard)
        store.observe(range(20), updates=updates, losses=np.where(np.arange(20) == 13, loss, honest))
        return selector.select(store.signals(0), 4, rng=np.random.default_rng(1)).tolist()

    highest = np.delete(honest, 13).max()
    assert cohort(1e9, guard=True) == cohort(highest, guard=True)
    assert 13 in cohort(1e9, guard=False)


def test_shortened_distances_are_those_of_shortened_updates() -> None:
    factor = np.where(np.arange(40) % 3 == 0, 0.25, 1.0)
    found = shortened_distances(pairwise(WORDS), norms(WORDS), factor, np.flatnonzero(factor < 1))
    np.testing.assert_allclose(found, pairwise(WORDS * factor[:, None]), atol=1e-12)


def test_a_reported_length_is_a_claim_unless_it_goes_with_distances() -> None:
    lengths = np.linspace(1, 1.9, 10)
    often = selected_often(9, 5)
    seen = guarded(Signals(lengths=lengths, **often))
    np.testing.assert_array_equal(seen.lengths, [*lengths[:9], 1])
    np.testing.assert_array_equal(guarded(Signals(lengths=lengths, **selected_often(9, 4))).lengths, lengths)
    updates = WORDS[:10] / norms(WORDS[:10])[:, None] * lengths[:, None]
    both = guarded(Signals(lengths=lengths, distances=pairwise(updates), **often))
    assert both.lengths is not None
    assert both.lengths[9] == pytest.approx(np.median(lengths), abs=0.06)  # as long as is typical, and the angles stay
    unknown = guarded(Signals(lengths=np.array([*lengths[:8], np.nan, 1.9]), **often)).lengths
    assert unknown is not None
    assert np.isnan(unknown[8])
    assert unknown[9] == 1
