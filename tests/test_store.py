import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import Rota, SignalStore
from equifl.sketch import CountSketch

NAN = float("nan")


def filled_store() -> SignalStore:
    store = SignalStore(4, sizes=[10, 20, 30, 40])
    store.observe([3, 1], losses=[0.5, 1.5], updates=[[1.0, 2.0], [3.0, 4.0]], round=0)
    store.observe([2], available=[False])
    return store


def test_store_remembers_what_is_reported() -> None:
    signals = filled_store().signals(1)
    np.testing.assert_array_equal(signals.losses, [NAN, 1.5, NAN, 0.5])
    np.testing.assert_array_equal(signals.updates, [[NAN, NAN], [3, 4], [NAN, NAN], [1, 2]])
    assert signals.last_selected.tolist() == [-1, 0, -1, 0]
    assert signals.times_selected.tolist() == [0, 1, 0, 1]
    assert signals.sizes.tolist() == [10, 20, 30, 40]
    assert signals.available.tolist() == [True, True, False, True]
    assert signals.round == 1


def test_availability_given_for_a_round_holds_for_that_round() -> None:
    store = filled_store()
    assert store.signals(1, available=[True, False, True, True]).available.tolist() == [True, False, True, True]
    assert store.signals(1).available.tolist() == [True, True, False, True]


def test_news_without_a_round_is_no_selection() -> None:
    store = SignalStore(2)
    store.observe([0], losses=[1.0])
    assert store.signals(0).times_selected.tolist() == [0, 0]


def test_a_selection_counts_once_a_round_whoever_reports_it() -> None:
    store = SignalStore(2)
    store.observe([0, 1], round=4)  # whom the server asked
    store.observe([0], losses=[1.0], round=4)  # who answered
    signals = store.signals(5)
    assert signals.times_selected.tolist() == [1, 1]
    assert signals.last_selected.tolist() == [4, 4]
    assert signals.knows_loss.tolist() == [True, False]


def test_what_was_handed_out_stays_as_it_was() -> None:
    store = filled_store()
    before = store.signals(1)
    store.observe([0], losses=[9.0], round=1)
    assert np.isnan(before.losses[0])
    assert before.times_selected[0] == 0


def test_a_guard_is_there_or_not() -> None:
    with pytest.raises(ValueError, match="guard: 'no' is not allowed; allowed: True or False"):
        SignalStore(3, guard="no")  # type: ignore[arg-type]


def test_nobody_is_a_legal_cohort() -> None:
    store = filled_store()
    store.observe([], losses=[], updates=np.zeros((0, 2)), round=1)
    np.testing.assert_equal(store.state_dict(), filled_store().state_dict())


@pytest.mark.parametrize(
    ("ids", "news", "message"),
    [
        ([0, 0], {"losses": [1.0, 2.0]}, r"ids: \[0\] more than once"),
        ([4], {"losses": [1.0]}, r"ids: \[4\] not allowed; allowed: 0 to 3"),
        ([-1], {"losses": [1.0]}, r"ids: \[-1\] not allowed"),
        ([0.5], {"losses": [1.0]}, r"ids: .* allowed: integers"),
        ([[0]], {"losses": [1.0]}, r"ids: shape \(1, 1\)"),
        ([0, 2], {"losses": [1.0]}, r"losses: shape \(1,\) is not allowed; allowed: \(2,\)"),
        ([0, 2], {"losses": [1.0, NAN]}, r"losses: client 2 has nan; allowed: finite and 0 or more$"),
        ([0, 2], {"losses": [1.0, -3.0]}, r"losses: client 2 has -3.0"),
        ([2], {"losses": [1.0], "updates": [[NAN, NAN]]}, r"updates: client 2 has nan; allowed: finite numbers$"),
        ([2], {"losses": [1.0], "updates": [[1.0]]}, r"updates: shape \(1, 1\) is not allowed; allowed: \(1, 2\)"),
        ([2], {"losses": [1.0], "updates": [[1e300, 0.0]]}, r"updates: client 2 has inf"),
        ([2], {"losses": [1.0], "sizes": [0]}, r"sizes: client 2 has 0.0"),
        ([2], {"losses": [1.0], "available": [1]}, r"available: int64"),
        ([1], {"losses": [1.0], "round": -1}, r"round: -1"),
    ],
)
def test_store_refuses_bad_news_and_is_unchanged(ids: Any, news: dict[str, Any], message: str) -> None:
    store = filled_store()
    with pytest.raises(ValueError, match=message):
        store.observe(ids, **news)
    np.testing.assert_equal(store.state_dict(), filled_store().state_dict())


def test_store_refuses_a_selection_before_the_last_one() -> None:
    store = SignalStore(2)
    store.observe([1], round=5)
    with pytest.raises(ValueError, match="last selection: client 1 has 5; allowed: 3 or before; to report late news"):
        store.observe([0, 1], round=3)
    assert store.signals(6).times_selected.tolist() == [0, 1]


@pytest.mark.parametrize("clients", [0, -1, 2.5, True, None])
def test_store_refuses_a_bad_number_of_clients(clients: Any) -> None:
    with pytest.raises(ValueError, match=r"clients: .* allowed: an integer of 1 or more"):
        SignalStore(clients)


@pytest.mark.parametrize("kind", ["npz", "json"])
@pytest.mark.parametrize("known", [True, False])
def test_state_survives_a_file(kind: str, known: bool, tmp_path: Path) -> None:
    store = filled_store() if known else SignalStore(4)
    state: Any = store.state_dict()
    if kind == "npz":
        np.savez(tmp_path / "state.npz", **state)
        with np.load(tmp_path / "state.npz") as arrays:
            state = dict(arrays)
    else:
        state = json.loads(json.dumps({name: array.tolist() for name, array in state.items()}))
    other = SignalStore(4)
    other.load_state_dict(state)
    np.testing.assert_equal(other.state_dict(), store.state_dict())
    for name, array in store.state_dict().items():
        assert other.state_dict()[name].dtype == array.dtype
    other.observe([0], losses=[1.0], updates=[[5.0, 6.0]], round=7)  # and can be written to


def test_a_state_may_be_without_the_history() -> None:
    store = filled_store()
    whole, rest = store.state_dict(), store.state_dict(history=False)
    assert whole.pop("history").size > 0
    np.testing.assert_equal(rest, whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": [1.0]}, r"losses: shape \(1,\)"),
        ({"losses": [1.0, -1.0, 0.0, 0.0]}, r"losses: client 1 has -1.0"),
        ({"updates": [[1.0]]}, r"updates: shape \(1, 1\)"),
        ({"surprise": [1.0]}, r"state: keys .*'surprise'.* are not allowed"),
    ],
)
def test_a_wrong_state_is_refused_whole(changes: dict[str, Any], message: str) -> None:
    store = filled_store()
    with pytest.raises(ValueError, match=message):
        store.load_state_dict(SignalStore(4).state_dict() | changes)
    np.testing.assert_equal(store.state_dict(), filled_store().state_dict())


def test_a_state_with_a_part_missing_is_refused() -> None:
    state = SignalStore(4).state_dict()
    del state["sizes"]
    with pytest.raises(ValueError, match="state: keys"):
        SignalStore(4).load_state_dict(state)


SKETCH = CountSketch(length=2, seed=3)


def mapped_store(path: Path, **options: Any) -> SignalStore:
    store = SignalStore(4, sizes=[10, 20, 30, 40], sketch=SKETCH, memory_map=path, **options)
    store.observe([3, 1], losses=[0.5, 1.5], updates=[[1.0, 2.0], [3.0, 4.0]], round=0)
    store.observe([2], available=[False])
    return store


def test_a_mapped_store_says_the_same_and_its_file_is_npy(tmp_path: Path) -> None:
    store = mapped_store(tmp_path / "sketches.npy")
    found, expected = store.signals(1), filled_store().signals(1)
    for name in ("losses", "updates", "last_selected", "times_selected", "sizes", "available"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    store.state_dict()  # what is reported is in the file from now on
    np.testing.assert_array_equal(np.load(tmp_path / "sketches.npy"), expected.updates)
    assert Rota().select(found, 2, rng=np.random.default_rng(0)).tolist()
    assert found.updates is not None
    assert not found.updates.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_mapped_store_resumes_from_its_file_and_its_state(dtype: str, tmp_path: Path) -> None:
    store = mapped_store(tmp_path / "sketches.npy", dtype=dtype)
    state = store.state_dict()
    assert "updates" not in state
    other = SignalStore(4, sketch=SKETCH, dtype=dtype, memory_map=tmp_path / "sketches.npy")
    other.load_state_dict(state)
    np.testing.assert_equal(other.state_dict(), state)
    found = other.signals(1).updates
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, filled_store().signals(1).updates)


def test_a_mapped_store_takes_over_the_state_of_one_in_memory(tmp_path: Path) -> None:
    store = SignalStore(4, sketch=SKETCH, memory_map=tmp_path / "sketches.npy")
    store.load_state_dict(filled_store().state_dict())
    np.testing.assert_array_equal(store.signals(1).updates, filled_store().signals(1).updates)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CountSketch(length=2, seed=4), "sketch.seed: 4 is not allowed; allowed: 3"),
        (CountSketch(length=5, seed=3), "sketch.length: 5 is not allowed; allowed: 2"),
    ],
)
def test_another_sketch_is_refused_by_name(other: CountSketch, message: str, tmp_path: Path) -> None:
    store = mapped_store(tmp_path / "sketches.npy")
    before = store.state_dict()
    with pytest.raises(ValueError, match=message):
        store.observe([0], updates=np.ones((1, other.length)), sketch=other, round=1)
    with pytest.raises(ValueError, match=message):
        store.load_state_dict(SignalStore(4, sketch=other).state_dict())
    with pytest.raises(ValueError, match=r"updates: shape \(1, 3\) is not allowed; allowed: \(1, 2\)"):
        SignalStore(4, sketch=SKETCH).observe([0], updates=np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"sketch: CountSketch.* allowed: none"):
        SignalStore(4).observe([0], updates=np.ones((1, other.length)), sketch=other)
    np.testing.assert_equal(store.state_dict(), before)


def test_the_right_sketch_may_be_named() -> None:
    store = SignalStore(2, sketch=SKETCH)
    store.observe([0], updates=[[1.0, 2.0]], sketch=CountSketch(length=2, seed=3))
    np.testing.assert_array_equal(store.signals(0).updates, [[1, 2], [NAN, NAN]])


def test_what_float16_cannot_hold_is_refused() -> None:
    store = SignalStore(2, dtype="float16")
    with pytest.raises(ValueError, match="updates: client 1 has inf; allowed: finite numbers up to 65,504"):
        store.observe([1], updates=[[1.0, 1e6]])
    wide = SignalStore(2)
    wide.observe([1], updates=[[1.0, 1e6]])
    with pytest.raises(ValueError, match="updates: client 1 has inf"):
        store.load_state_dict(wide.state_dict())
    assert store.signals(0).updates is None


@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"dtype": None}, {"memory_map": "x.npy"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(dtype|sketch): "):
        SignalStore(2, **options)


@pytest.mark.parametrize("mapped", [True, False])
def test_clients_may_join(mapped: bool, tmp_path: Path) -> None:
    store = mapped_store(tmp_path / "sketches.npy") if mapped else filled_store()
    before = store.signals(1)
    for n in (5, 6, 11):
        store.grow(n)
    signals = store.signals(1)
    assert len(store) == signals.n == 11
    np.testing.assert_array_equal(signals.updates, np.vstack([np.asarray(before.updates), np.full((7, 2), NAN)]))
    np.testing.assert_array_equal(signals.losses, [*before.losses, *[NAN] * 7])
    assert signals.last_selected.tolist() == [-1, 0, -1, 0] + [-1] * 7
    assert signals.times_selected.tolist() == [0, 1, 0, 1] + [0] * 7
    assert signals.sizes.tolist() == [10, 20, 30, 40] + [1] * 7
    assert signals.available.tolist() == [True, True, False] + [True] * 8
    store.observe([10, 0], losses=[1.0, 2.0], updates=[[5.0, 6.0], [7.0, 8.0]], round=1)
    np.testing.assert_array_equal(before.losses, [NAN, 1.5, NAN, 0.5])
    other = SignalStore(
        11, sketch=SKETCH if mapped else None, memory_map=tmp_path / "sketches.npy" if mapped else None
    )
    other.load_state_dict(store.state_dict())
    np.testing.assert_equal(other.signals(2).updates, store.signals(2).updates)


def test_growing_before_anything_was_reported_and_to_the_same_number() -> None:
    store = SignalStore(1)
    store.grow(3)
    store.grow(3)
    assert store.signals(0).updates is None
    store.observe([2], updates=[[1.0]])
    with pytest.raises(ValueError, match="clients: 2 is not allowed; allowed: an integer of 3 or more"):
        store.grow(2)


def test_joining_one_by_one_copies_little(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SignalStore(1)
    store.observe([0], updates=[[1.0]])
    places = set()
    for n in range(2, 1000):
        store.grow(n)
        updates = store.signals(0).updates
        assert updates is not None
        places.add(updates.__array_interface__["data"][0])
    assert len(places) <= 11


def test_the_history_holds_every_selection() -> None:
    store = SignalStore(4)
    store.observe([2, 0], round=0)
    store.observe([0], losses=[1.0], round=0)  # reported again
    store.observe([3], losses=[1.0])  # no selection
    store.observe([0, 1], round=2)
    assert store.signals(3).history.tolist() == [[0, 2], [0, 0], [2, 0], [2, 1]]  # type: ignore[union-attr]
    store.forget([0])
    assert store.signals(3).history.tolist() == [[0, 2], [2, 1]]  # type: ignore[union-attr]


def test_who_joins_counts_as_having_had_the_turns_of_those_who_were_there() -> None:
    store = SignalStore(2)
    store.grow(3)
    assert store.signals(0).joined.tolist() == [0, 0, 0]  # nobody was selected yet
    for round in range(6):
        store.observe([0, 1, 2], round=round)
    store.grow(4)
    store.forget([1])
    signals = store.signals(6)
    assert signals.joined.tolist() == [0, 6, 0, 6]
    assert signals.turns.tolist() == [6, 5, 6, 5]
    assert signals.times_selected.tolist() == [6, 0, 6, 0]


def test_who_is_away_is_who_was_unavailable_when_signals_were_taken() -> None:
    store = SignalStore(3, catch_up=2)
    for round in range(5):
        store.signals(round, available=[True, True, False])
        store.signals(9, available=[False] * 3)  # a look in between, at nobody
        store.observe([0, 1], round=round)
    assert store.signals(5).turns.tolist() == [5, 5, 3]
    store.observe([1, 2], available=[False, False])  # away until further notice
    for round in range(5, 9):
        store.observe([0], round=round)
    assert store.signals(9).turns.tolist() == [9, 7, 7]


def test_a_copy_of_the_state_takes_the_same_turns() -> None:
    """Saved and loaded after every round, through JSON, while clients come, leave and join."""
    straight, saved = SignalStore(5), SignalStore(5)
    for round in range(30):
        rng = np.random.default_rng(round)
        n = 5 + round // 10
        available = rng.random(n) < 0.6
        available[0] = True
        cohorts = []
        for store in (straight, saved):
            store.grow(n)
            cohort = Rota().select(store.signals(round, available=available), min(2, available.sum()), rng=round)
            store.observe(cohort, round=round, updates=np.random.default_rng(round).normal(size=(len(cohort), 3)))
            cohorts.append(cohort.tolist())
        assert cohorts[0] == cohorts[1]
        state = {key: array.tolist() for key, array in saved.state_dict().items()}
        saved = SignalStore(n)
        saved.load_state_dict(json.loads(json.dumps(state)))
    assert straight.signals(30).missed_turns.any()


def test_a_state_without_turns_counts_everybody_as_present_all_along() -> None:
    state = filled_store().state_dict()
    for key in ("missed_turns", "joined", "history", "progress"):
        del state[key]
    store = SignalStore(4)
    store.load_state_dict(state)
    store.grow(5)
    signals = store.signals(1)
    assert signals.turns.tolist() == [0, 1, 0, 1, 0]
    assert signals.joined.tolist() == [0, 0, 0, 0, 1]
    assert signals.history is None  # not known, which is not the same as empty
    store.observe([0], round=1)
    assert store.signals(2).history is None
    assert "history" not in store.state_dict()


def test_a_state_with_impossible_progress_is_refused() -> None:
    state = filled_store().state_dict()
    for progress in ([-1, 1], [0, 0]):
        with pytest.raises(ValueError, match=r"progress: .* is not allowed; allowed: 0 or more, 1 or more"):
            SignalStore(4).load_state_dict(state | {"progress": np.array(progress)})


def test_a_wait_counts_rounds_however_a_cohort_is_reported() -> None:
    at_once, one_by_one = SignalStore(5), SignalStore(5)
    for round, cohort in enumerate(([0, 1], [1, 2], [0, 2])):
        at_once.observe(cohort, round=round)
        for client in cohort:
            one_by_one.observe([client], round=round)
    assert at_once.signals(3).waited.tolist() == one_by_one.signals(3).waited.tolist() == [0, 1, 0, 3, 3]


MASKED = np.ma.array([0.5, 0.7], mask=[False, True])
DATES = np.array(["2024-01-01", "2024-01-02"], "M8[D]")


def everything(store: SignalStore) -> dict[str, Any]:
    """All that a store holds, also what `state_dict` leaves out."""
    return {name: deepcopy(value) for name, value in vars(store).items()}


@pytest.mark.parametrize(
    ("news", "message"),
    [
        ({"round": 2**63}, r"round: 9223372036854775808 is not allowed"),
        ({"round": 2**70}, r"round: \d+ is not allowed; allowed: an integer of 0 or more, up to"),
        ({"round": 2**62}, r"round: \d+ is not allowed"),
        ({"round": 3.0}, r"round: 3.0 is not allowed"),
        ({"losses": MASKED}, r"losses: a masked array is not allowed; .*`values.filled"),
        ({"losses": ["1", "2"]}, r"losses: cannot be read as numbers \(text\)"),
        ({"losses": DATES}, r"losses: cannot be read as numbers \(dates\)"),
        ({"losses": [True, False]}, r"losses: cannot be read as numbers \(booleans\)"),
        ({"sizes": DATES - DATES[0]}, r"sizes: cannot be read as numbers \(durations\)"),
        ({"sizes": [True, True]}, r"sizes: cannot be read as numbers \(booleans\)"),
        ({"sizes": MASKED}, r"sizes: a masked array"),
        ({"updates": np.ma.array([[1.0, 2.0], [3.0, 4.0]])}, r"updates: a masked array"),
        ({"updates": [["1", "2"], ["3", "4"]]}, r"updates: cannot be read as numbers \(text\)"),
        ({"updates": [[10**400, 1], [1, 1]]}, r"updates: cannot be read as numbers"),
        ({"available": np.ma.array([True, False])}, r"available: a masked array"),
        ({"updates": [[1.0, 2.0], [3.0, 4.0]], "sketch": "mine"}, r"sketch: 'mine' is not allowed"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(news: dict[str, Any], message: str) -> None:
    store = filled_store()
    before = everything(store)
    good: dict[str, Any] = {"losses": [9.0, 9.0], "updates": [[9.0, 9.0], [9.0, 9.0]], "sizes": [9, 9], "round": 1}
    with pytest.raises(ValueError, match=message):
        store.observe([0, 1], **(good | news))
    np.testing.assert_equal(everything(store), before)


@pytest.mark.parametrize(
    "ids", [np.ma.array([0, 1]), ["0", "1"], DATES, [True, False], [True, 1], [2**63, 0], [2**70, 0], [1e30, 0.0]]
)
def test_ids_that_are_none_are_refused_by_name(ids: Any) -> None:
    store = filled_store()
    before = everything(store)
    with pytest.raises(ValueError, match=r"^ids: "):
        store.observe(ids, losses=[1.0, 2.0], round=1)
    with pytest.raises(ValueError, match=r"^ids: "):
        store.forget(ids)
    np.testing.assert_equal(everything(store), before)


@pytest.mark.parametrize("round", [-1, 2**70, 1.5, "3", None])
def test_signals_that_are_refused_leave_nothing_behind(round: Any) -> None:
    store = filled_store()
    before = everything(store)
    with pytest.raises(ValueError, match=r"^round: "):
        store.signals(round, available=[True, False, True, False])
    np.testing.assert_equal(everything(store), before)


def test_the_last_round_that_can_be_counted() -> None:
    store = filled_store()
    store.observe([0, 1], round=2**62 - 2)
    store.grow(6)
    signals = store.signals(2**63 - 1)
    assert signals.last_selected.tolist() == [2**62 - 2, 2**62 - 2, -1, 0, -1, -1]
    assert Rota().select(signals, 2, rng=0).shape == (2,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times_selected": [2**63, 0, 0, 0]}, "times_selected: .* not allowed"),
        ({"times_selected": [2**62, 0, 0, 0]}, "times_selected: client 0 has 4611686018427387904; allowed: 0 or more"),
        ({"last_selected": [2**62, -1, -1, -1]}, "last_selected: client 0 has"),
        ({"missed_turns": np.ma.array([0, 0, 0, 0])}, "missed_turns: a masked array"),
        ({"progress": [2**62, 2**62]}, "progress: .* is not allowed"),
        ({"progress": [0, 2**70]}, "progress: .* is not allowed"),
        ({"sketch": [4]}, r"sketch: shape \(1,\)"),
        ({"sketch": ["4", "0"]}, r"sketch: .* is not allowed"),
        ({"losses": np.ma.array([0.1, 0.2, 0.3, 0.4])}, "losses: a masked array"),
        ({"joined": DATES}, "joined: .* not allowed"),
    ],
)
def test_a_hostile_state_leaves_nothing_behind(changes: dict[str, Any], message: str) -> None:
    store = filled_store()
    before = everything(store)
    with pytest.raises(ValueError, match=message):
        store.load_state_dict(SignalStore(4).state_dict() | changes)
    np.testing.assert_equal(everything(store), before)


@pytest.mark.parametrize("clients", [2**70, 2**41])
def test_numbers_of_clients_that_no_machine_holds_are_refused(clients: int) -> None:
    store = filled_store()
    for call in (SignalStore, store.grow):
        with pytest.raises(ValueError, match=rf"clients: {clients} is not allowed"):
            call(clients)
    assert len(store) == 4


def test_updates_for_which_memory_lacks_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SignalStore(4)
    before = everything(store)

    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(np, "full", full)
    with pytest.raises(MemoryError):
        store.observe([0], losses=[1.0], updates=[[1.0]], sizes=[5], round=0)
    np.testing.assert_equal(everything(store), before)


def test_keeps_optional_signals_once_somebody_reports_them() -> None:
    store = SignalStore(3)
    store.observe([0], losses=[1.0])
    assert store.signals(0).durations is None
    assert "durations" not in store.state_dict()
    store.observe([2], durations=[2.5], label_counts=[[3, 4]], lengths=[7.0], bias_updates=[[-1.0, 1.0]])
    store.grow(4)
    signals = store.signals(1)
    assert signals.durations is not None
    np.testing.assert_equal(signals.durations, [np.nan, np.nan, 2.5, np.nan])
    np.testing.assert_equal(signals.label_counts, [[np.nan] * 2, [np.nan] * 2, [3, 4], [np.nan] * 2])
    other = SignalStore(4)
    other.load_state_dict(store.state_dict())
    np.testing.assert_equal(everything(other), everything(store))
    store.forget([2])
    assert not any(store.signals(1).knows(name).any() for name in ("durations", "label_counts", "lengths"))


@pytest.mark.parametrize(
    ("news", "message"),
    [
        ({"durations": [0.0]}, "durations: client 1 has 0.0; allowed: finite and above 0$"),
        ({"lengths": [np.nan]}, "lengths: client 1 has nan; allowed: finite and 0 or more$"),
        ({"label_counts": [[1.0, 2.0, 3.0]]}, r"label_counts: shape \(1, 3\) is not allowed; allowed: \(1, 2\)"),
        ({"bias_updates": [[np.nan, 1.0]]}, "bias_updates: client 1 has"),
    ],
)
def test_a_wrong_optional_signal_leaves_nothing_behind(news: dict[str, Any], message: str) -> None:
    store = filled_store()
    store.observe([0], label_counts=[[1, 2]], round=None)
    before = everything(store)
    with pytest.raises(ValueError, match=message):
        store.observe([1], losses=[5.0], **news)
    np.testing.assert_equal(everything(store), before)
