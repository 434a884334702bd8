from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import Rota, Signals, SignalStore, Uniform
from equifl._numerics.distances import centred_products
from equifl.metrics import gini
from equifl.selectors import planning
from equifl.signals import Bools, Floats, Ints
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True

    def make(self) -> Rota:
        return Rota()


def play(n: int, k: int, rounds: int, *, online: float = 1.0) -> tuple[Ints, Floats, list[Ints]]:
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(n, 5))
    store = SignalStore(n)
    store.observe(np.arange(n), updates=updates)
    cohorts = []
    for round in range(rounds):
        available = rng.random(n) < online
        available[rng.integers(n, size=k)] = True
        cohort = Rota().select(store.signals(round, available=available), min(k, int(available.sum())), rng=rng)
        store.observe(cohort, round=round)
        cohorts.append(cohort)
    return store.signals(rounds).times_selected, updates, cohorts


@given(st.integers(1, 25), st.data())
def test_everybody_takes_part_equally_often(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    times, _, _ = play(n, k, data.draw(st.integers(1, 12)))
    assert times.max() - times.min() <= 1


def test_with_clients_offline_those_behind_go_first() -> None:
    times, _, cohorts = play(40, 5, 200, online=0.5)
    assert times.max() - times.min() <= 2
    assert all(len(set(cohort.tolist())) == 5 for cohort in cohorts)


def test_every_cohort_is_a_miniature_of_the_population() -> None:
    """Its mean update is several times nearer to the population's than a random cohort's."""
    _, updates, cohorts = play(100, 10, 30)
    rng = np.random.default_rng(1)
    at_random = [Uniform().select(Signals(updates=updates), 10, rng=rng) for _ in range(300)]

    def error(cohort: Ints) -> float:
        return float(np.linalg.norm(updates[cohort].mean(axis=0) - updates.mean(axis=0)))

    assert np.mean([error(cohort) for cohort in cohorts]) < np.mean([error(cohort) for cohort in at_random]) / 4


def test_those_sure_of_a_seat_are_balanced_by_the_others() -> None:
    """Two at +10 are behind: of the rest, those at -10 come in with them."""
    updates = np.array([10.0, 10.0] + [-10.0] * 2 + [0.5, -0.5] * 10)[:, None]
    times = np.array([0, 0] + [1] * 22)
    last = np.where(times > 0, 0, -1)
    signals = Signals(updates=updates, times_selected=times, last_selected=last, round=1)
    for seed in range(5):
        chosen = Rota().select(signals, 4, rng=np.random.default_rng(seed))
        assert sorted(chosen.tolist()) == [0, 1, 2, 3]


def test_unknown_clients_wait_for_those_with_fewer_selections() -> None:
    signals = random_signals(10, unknown=1)
    unknown = int(np.flatnonzero(~signals.knows_update)[0])
    times = np.ones(10, np.int64)
    times[unknown] = 2
    chosen = Rota().select(replace(signals, times_selected=times), 5, rng=np.random.default_rng(0))
    assert unknown not in chosen


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Whatever is planned: of how many clients, in how many groups."""
    seen, plan = [], planning.planned

    def watched(inner: Floats, pull: Floats, labels: Ints, groups: int) -> Ints:
        seen.append((len(labels), groups))
        return plan(inner, pull, labels, groups)

    monkeypatch.setattr(planning, "planned", watched)
    return seen


def test_large_pools_are_planned_in_part(monkeypatch: pytest.MonkeyPatch, planned: list[tuple[int, int]]) -> None:
    monkeypatch.setattr(planning, "_CLIENTS", 64)
    signals = Signals(updates=np.random.default_rng(0).normal(size=(1000, 2)))
    for k in (1, 10, 50):
        chosen = Rota().select(signals, k, rng=np.random.default_rng(0))
        assert len(set(chosen.tolist())) == k
    assert planned == [(32, 32), (64, 6), (64, 1)]


def test_large_cohorts_are_planned_by_tables(planned: list[tuple[int, int]]) -> None:
    updates = np.random.default_rng(0).normal(size=(3000, 3))
    times = np.repeat([0, 1], [10, 2990])  # ten are behind, and sure of a seat
    signals = Signals(updates=updates, times_selected=times, last_selected=times - 1, round=1)
    chosen = Rota().select(signals, 300, rng=np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 300
    assert set(chosen.tolist()) >= set(range(10))
    assert planned == [(997, 9), (997, 10), (996, 10)]  # 290 seats: 97 beside those ten, 97, 96
    assert len(set(Rota().select(signals, 3000, rng=np.random.default_rng(0)).tolist())) == 3000
    assert len(planned) == 3  # nobody is left to plan


def test_a_pool_that_can_be_planned_at_once_is(planned: list[tuple[int, int]]) -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(700, 3)))
    assert len(set(Rota().select(signals, 260, rng=np.random.default_rng(0)).tolist())) == 260
    assert planned == [(700, 2)]


def test_all_tables_balance_those_sure_of_a_seat() -> None:
    """Who is behind is often of one kind: 200 of 500 seats are taken by such clients."""
    updates = np.random.default_rng(0).normal(size=(3000, 4))
    updates[:200] += 0.7
    times = np.repeat([0, 1], [200, 2800])
    signals = Signals(updates=updates, times_selected=times, last_selected=times - 1, round=1)
    off = updates - updates.mean(axis=0)
    chosen = Rota().select(signals, 500, rng=np.random.default_rng(0))
    at_random = np.append(np.arange(200), np.random.default_rng(0).permutation(np.arange(200, 3000))[:300])
    assert set(chosen.tolist()) >= set(range(200))
    assert np.linalg.norm(off[chosen].mean(axis=0)) < np.linalg.norm(off[at_random].mean(axis=0)) / 10


@pytest.mark.slow
def test_a_large_cohort_is_a_miniature_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By tables it is clearly nearer to the population's mean than if few groups shared one part of the pool."""
    updates = np.random.default_rng(0).normal(size=(8192, 5))

    def error() -> float:
        cohorts = [Rota().select(Signals(updates=updates), 512, rng=np.random.default_rng(seed)) for seed in range(2)]
        return float(
            np.mean([np.linalg.norm((updates[cohort] - updates.mean(axis=0)).mean(axis=0)) for cohort in cohorts])
        )

    by_tables = error()
    monkeypatch.setattr(planning, "_PLACES", 512)
    assert by_tables < error() / 1.5


def seats_of(rounds: range, store: SignalStore, k: int, *, join: dict[int, int] | None = None) -> list[Ints]:
    """Cohorts of Rota where `join` says how many clients there are from a round on; everybody answers."""
    rng = np.random.default_rng(0)
    cohorts = []
    for round in rounds:
        store.grow((join or {}).get(round, len(store)))
        cohort = Rota().select(store.signals(round), k, rng=rng)
        store.observe(cohort, round=round, updates=rng.normal(size=(k, 3)))
        cohorts.append(cohort)
    return cohorts


def test_newcomers_do_not_take_every_seat() -> None:
    """Four clients for 20 rounds, then eight: by lifetime counts the old four would have no seat for 20 rounds."""
    cohorts = seats_of(range(40), SignalStore(4), 2, join={20: 8})
    after = np.bincount(np.concatenate(cohorts[20:]), minlength=8)
    assert after[:4].sum() >= 0.4 * after.sum()
    assert after[4:].sum() >= 0.4 * after.sum()
    assert after.max() - after.min() <= 2


@pytest.mark.parametrize("catch_up", [0, 1, 5])
def test_who_comes_back_catches_up_by_so_many_turns(catch_up: int) -> None:
    rng = np.random.default_rng(0)
    store = SignalStore(6, catch_up=catch_up)
    store.observe(np.arange(6), updates=rng.normal(size=(6, 3)))
    everyone, without = np.ones(6, bool), np.arange(6) != 0
    for round in range(20):
        cohort = Rota().select(store.signals(round, available=without), 2, rng=rng)
        store.observe(cohort, round=round)
    fewest = store.signals(20).times_selected[1:].min()
    in_a_row = 0
    for round in range(20, 30):
        cohort = Rota().select(store.signals(round, available=everyone), 2, rng=rng)
        store.observe(cohort, round=round)
        if 0 not in cohort:
            break
        in_a_row += 1
    assert store.signals(30).missed_turns[0] == fewest - catch_up
    assert catch_up <= in_a_row <= catch_up + 1


def test_a_closed_population_always_online_is_chosen_by_its_counts() -> None:
    """Cohort for cohort as if the store counted selections alone, unknown clients and silent rounds included."""
    rng = np.random.default_rng(7)
    updates = rng.normal(size=(30, 4))
    store, counts, last = SignalStore(30), np.zeros(30, np.int64), np.full(30, -1)
    for round in range(25):
        signals = store.signals(round, available=np.ones(30, bool))
        cohort = Rota().select(signals, 4, rng=round)
        known = signals.knows_update
        plain = Signals(
            updates=np.where(known[:, None], updates, np.nan), times_selected=counts, last_selected=last, round=round
        )
        assert Rota().select(plain, 4, rng=round).tolist() == cohort.tolist()
        store.observe(cohort, round=round, updates=updates[cohort])
        counts[cohort] += 1
        last[cohort] = round
    assert not store.signals(25).missed_turns.any()


def test_with_a_third_online_participation_is_nearly_equal() -> None:
    """The paper's setting: 100 clients, 10 a round, 70 rounds, 30 % online."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        store = SignalStore(100)
        store.observe(np.arange(100), updates=rng.normal(size=(100, 3)))
        for round in range(70):
            online = rng.random(100) < 0.3
            cohort = Rota().select(store.signals(round, available=online), min(10, int(online.sum())), rng=rng)
            store.observe(cohort, round=round)
        assert gini(store.signals(70).times_selected) <= 0.05


def test_ends_where_squared_lengths_add_up_to_less_than_nothing() -> None:
    """Distances on a line, of two pairs of clients: rounding made the least gain of a swap negative."""
    u = np.array([0.3, -0.3, 0, 0, 0, 0])
    signals = Signals(distances=np.abs(u[:, None] - u), times_selected=np.array([1, 1, 0, 0, 0, 0]))
    assert len(Rota().select(signals, 1, rng=0)) == 1


@given(st.integers(2, 24), st.integers(0, 10**6), st.sampled_from(["euclidean", "squared", "any", "two values"]))
def test_ends_for_all_distances_within_its_passes(n: int, seed: int, kind: str) -> None:
    """It stops by itself, before the bound on passes does: what it returns then is a local minimum."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 2)).round(1)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    if kind == "squared":
        distances = distances**2
    elif kind != "euclidean":  # symmetric numbers, which no points have as distances
        distances = rng.random((n, n)) if kind == "any" else rng.choice([0.0, 1.0], (n, n))
        distances = np.triu(distances, 1) + np.triu(distances, 1).T
    signals = Signals(distances=distances)
    products = centred_products(signals)(np.arange(n), np.arange(n))
    k = int(rng.integers(1, n + 1))
    labels = np.minimum(np.arange(n) // k, n // k)
    once = planning.planned(products, np.zeros(n), labels, n // k)
    np.testing.assert_array_equal(planning.planned(products, np.zeros(n), once, n // k), once)
    assert np.bincount(once).tolist() == np.bincount(labels).tolist()
    assert len(set(Rota().select(signals, k, rng=0).tolist())) == k


def turns_taken(rounds: int, n: int, k: int, *, online: Callable[[int], Bools], mute: int | None = None) -> Ints:
    """How often each client is selected; `mute` never answers, all others always do."""
    updates = np.random.default_rng(0).normal(size=(n, 6))
    store = SignalStore(n)
    for round in range(rounds):
        available = online(round)
        cohort = Rota().select(store.signals(round, available=available), min(k, int(available.sum())), rng=round)
        store.observe(cohort, round=round)
        answered = cohort[cohort != mute]
        store.observe(answered, updates=updates[answered])
    return store.times_selected


def test_clients_that_are_there_every_second_round_take_turns_among_themselves() -> None:
    """Each absence makes them equal; the balance of groups alone would leave one of them out each time."""
    always = np.arange(8) < 3
    times = turns_taken(200, 8, 2, online=lambda t: always | (t % 2 == 1))
    assert times[3:].min() >= 0.3 * times[3:].max()  # by balance alone one of them had 1 of 200
    assert times[:3].min() >= times[3:].max()


def test_clients_under_new_names_do_not_lower_what_newcomers_count_as() -> None:
    """A hundred rounds of three new names each; then ten clients join to stay, among twenty old ones."""
    updates = np.random.default_rng(0).normal(size=(400, 6))
    store = SignalStore(20)
    old = 0
    for round in range(240):
        if 100 <= round <= 200:
            store.grow(len(store) + (3 if round < 200 else 10))
        available = np.arange(len(store)) < 20
        available[len(store) - (3 if round < 200 else 10) :] |= round >= 100
        cohort = Rota().select(store.signals(round, available=available), 4, rng=round)
        store.observe(cohort, round=round, updates=updates[cohort])
        old += int((cohort < 20).sum()) if round >= 200 else 0
    assert 0.5 * 160 <= old <= 0.75 * 160  # two thirds are theirs


def test_a_client_that_never_answers_does_not_make_room_for_others() -> None:
    """Client 0 is asked in vain; client 7 is away from round 5 to 199, and is then one of eight."""
    seats = np.zeros(8, np.int64)
    for rounds, sign in ((260, 1), (200, -1)):
        seats += sign * turns_taken(rounds, 8, 2, online=lambda r: (np.arange(8) < 7) | (r < 5 or r >= 200), mute=0)
    assert seats[7] <= 20
    assert seats[1:7].min() >= 14


def test_with_a_third_online_cohorts_are_as_balanced_as_by_lifetime_counts() -> None:
    """Counting turns must not cost the balance: with `catch_up` without end they are lifetime counts."""

    def imbalance(catch_up: int) -> float:
        found = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            updates = rng.normal(size=(100, 10)) ** 3
            store = SignalStore(100, catch_up=catch_up)
            store.observe(np.arange(100), updates=updates)
            for round in range(50):
                cohort = Rota().select(store.signals(round, available=rng.random(100) < 0.3), 10, rng=round)
                store.observe(cohort, round=round)
                found.append(float(np.square(updates[cohort].mean(axis=0) - updates.mean(axis=0)).sum()))
        return float(np.mean(found))

    assert imbalance(1) < 1.15 * imbalance(10**6)


def others_balance(cohort: Ints, updates: Floats, others: Bools) -> float:
    """|sum over honest members of (u - mean)|^2, for each of them: the same for any number of random ones."""
    members = cohort[others[cohort]]
    off = (updates[members] - updates[others].mean(axis=0)).sum(axis=0)
    return float((off**2).sum()) / len(members)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 100.0, 1e4, 1e6, 1e12, 1e19, 1e25, 1e31, 1e37])
@pytest.mark.parametrize("kind", ["updates", "distances"])
def test_an_outlier_does_not_undo_the_balance_of_the_others(scale: float, kind: str) -> None:
    ours, random = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        updates = rng.normal(size=(100, 16))
        others = np.arange(100) != rng.integers(100)
        sent = np.where(others[:, None], updates, scale * updates).astype(np.float32)
        apart = np.linalg.norm(sent[:, None].astype(np.float64) - sent, axis=2)
        signals = Signals(updates=sent) if kind == "updates" else Signals(distances=apart)
        ours.append(others_balance(Rota().select(signals, 10, rng=seed), updates, others))
        random += [others_balance(Uniform().select(signals, 10, rng=s), updates, others) for s in range(10)]
    assert np.mean(ours) < 0.75 * np.mean(random)


@pytest.mark.parametrize(("liars", "together"), [(5, False), (30, False), (30, True), (49, True)])
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e30])
def test_nor_do_several_that_are_fewer_than_half(liars: int, scale: float, together: bool) -> None:
    ours, random = [], []
    for seed in range(8):
        updates = np.random.default_rng(seed).normal(size=(100, 16))
        others = np.arange(100) >= liars
        sent = updates.copy()
        sent[~others] = scale * (updates[:1] if together else updates[~others])
        signals = Signals(updates=sent.astype(np.float32))
        ours.append(others_balance(Rota().select(signals, 10, rng=seed), updates, others))
        random += [others_balance(Uniform().select(signals, 10, rng=s), updates, others) for s in range(10)]
    assert np.mean(ours) < 0.75 * np.mean(random)
