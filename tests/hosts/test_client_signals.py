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


def test_its_state_is_restored() -> None:
    signals = known(3)
    signals.selected(np.array([0, 2]), 4)
    signals.learn("updates", np.array([0]), np.ones((1, 4), np.float32))
    again = ClientSignals(SKETCH, guard=True)
    again.load(signals.state(), 3)
    assert again.times_selected().tolist() == [1, 0, 1]
    ours, theirs = again.at(5, np.arange(3)), signals.at(5, np.arange(3))
    assert ours.updates is not None
    assert theirs.updates is not None
    np.testing.assert_array_equal(ours.updates, theirs.updates)


def test_before_the_first_client_there_is_nothing() -> None:
    signals = ClientSignals(SKETCH, guard=True)
    assert signals.times_selected().tolist() == []
    assert signals.state() == {}
    signals.load({}, 0)
    signals.forget([])
