import numpy as np

from equifl.hosts.client_signals import ClientSignals
from equifl.sketch import CountSketch

SKETCH = CountSketch(length=4)


def known(clients: int, *, guard: bool = True) -> ClientSignals:
    one = ClientSignals(SKETCH, guard=guard)
    one.grow(clients)
    return one


def test_clients_that_join_are_unknown_and_the_others_keep_what_they_reported() -> None:
    signals = known(2)
    signals.selected(np.array([1, 1]), 0)
    signals.learn("losses", np.array([1]), np.array([0.5]))
    signals.grow(3)
    now = signals.at(1, np.array([0, 2]))
    assert now.available.tolist() == [True, False, True]
    assert now.losses is not None
    assert np.isnan(now.losses).tolist() == [True, False, True]
    assert signals.times_selected().tolist() == [0, 1, 0]
    signals.forget([1])
    assert signals.times_selected().tolist() == [0, 0, 0]


def test_the_guard_shows_a_long_update_as_typical_and_keeps_it_as_reported() -> None:
    updates = np.eye(4, dtype=np.float32)
    updates[3] *= 1e6
    for guard, seen in ((True, 1), (False, 1e6)):
        signals = known(4, guard=guard)
        signals.learn("updates", np.arange(4), updates)
        kept = signals.at(None, np.arange(4)).updates
        assert kept is not None
        np.testing.assert_array_equal(kept[:3], updates[:3])
        assert kept[3, 3] == seen
        np.testing.assert_array_equal(signals.state()["store.updates"], updates)


def test_its_state_is_restored_and_the_history_made_of_the_cohorts() -> None:
    signals = known(3)
    signals.selected(np.array([2, 0]), 0)
    signals.selected(np.array([1]), 1)
    signals.forget([2])
    signals.selected(np.array([1, 2]), 2)  # somebody else has the id of 2
    signals.learn("updates", np.array([0]), np.ones((1, 4), np.float32))
    again = ClientSignals(SKETCH, guard=True)
    again.load(signals.state(), 3, [[2, 0], [1], [1, 2]])
    assert again.times_selected().tolist() == [1, 2, 1]
    ours, theirs = again.at(5, np.arange(3)), signals.at(5, np.arange(3))
    assert ours.updates is not None
    assert theirs.updates is not None
    np.testing.assert_array_equal(ours.updates, theirs.updates)
    assert ours.history is not None
    assert theirs.history is not None
    assert ours.history.tolist() == theirs.history.tolist() == [[0, 0], [1, 1], [2, 1], [2, 2]]


def test_the_state_does_not_grow_with_the_rounds() -> None:
    signals = known(3)
    sizes = set()
    for round in range(5):
        signals.selected(np.array([round % 3]), round)
        sizes.add(sum(array.size for array in signals.state().values()))
    assert len(sizes) == 1


def test_before_the_first_client_there_is_nothing() -> None:
    signals = ClientSignals(SKETCH, guard=True)
    assert signals.times_selected().tolist() == []
    assert signals.state() == {}
    signals.load({}, 0, [])
    signals.forget([])
