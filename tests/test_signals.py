from typing import Any

import numpy as np
import pytest

from equifl import Signals
from equifl.signals import OPTIONAL

NAN = float("nan")


def test_defaults_are_never_zero_one_and_everyone() -> None:
    signals = Signals(losses=np.array([0.5, NAN]))
    assert signals.n == 2
    assert signals.updates is None
    assert signals.last_selected.tolist() == [-1, -1]
    assert signals.times_selected.tolist() == [0, 0]
    assert signals.sizes.tolist() == [1, 1]
    assert signals.available.tolist() == [True, True]
    assert signals.round == 0


def test_updates_alone_say_who_the_clients_are() -> None:
    signals = Signals(updates=np.ones((3, 2)))
    assert signals.n == 3
    assert not signals.knows_loss.any()
    assert signals.knows_update.all()


def test_distances_say_whose_update_is_known() -> None:
    distances = np.array([[0, NAN, 2], [NAN, NAN, NAN], [2, NAN, 0]])
    assert Signals(distances=distances).knows_update.tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_large_updates_are_known_although_their_sum_is_not(dtype: type) -> None:
    most = np.finfo(dtype).max if dtype is not np.float64 else 1e300
    updates: Any = np.array([[most, most], [NAN, NAN], [-most, -most]], dtype)
    assert Signals(updates=updates).knows_update.tolist() == [True, False, True]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_infinite_updates_are_refused_without_a_warning(dtype: type) -> None:
    with pytest.raises(ValueError, match="updates: client 0 has nan; allowed: finite numbers"):
        Signals(updates=np.array([[np.inf, -np.inf], [1, 2]], dtype))


def test_is_a_value_that_cannot_be_written_through() -> None:
    signals = Signals(losses=np.array([0.5, 1.0]), updates=np.ones((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        signals.losses[0] = 3
    with pytest.raises(AttributeError):
        signals.round = 4  # type: ignore[misc]


GOOD: dict[str, Any] = {"losses": [0.5, 1.0, NAN], "updates": [[1.0, 2.0], [3.0, 4.0], [NAN, NAN]], "round": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": [0.5, -0.1, 1.0]}, r"losses: client 1 has -0.1; allowed: finite and 0 or more"),
        ({"losses": [0.5, 1.0, np.inf]}, r"losses: client 2 has inf"),
        ({"losses": ["a", "b", "c"]}, r"losses: cannot be read as numbers"),
        ({"losses": [[0.5], [1.0], [1.0]]}, r"losses: shape \(3, 1\) is not allowed; allowed: \(3,\)"),
        ({"losses": [1j, 1.0, 1.0]}, r"losses: cannot be read as numbers"),
        ({"updates": [[1.0, 2.0], [3.0], [4.0]]}, r"updates: cannot be read as numbers"),
        ({"losses": 3.0}, r"losses: shape \(\)"),
        ({"losses": []}, r"losses: shape \(0,\)"),
        ({"updates": [[1.0, 2.0], [3.0, 4.0]]}, r"updates: shape \(2, 2\) is not allowed; allowed: \(3, d\)"),
        ({"updates": [1.0, 2.0, 3.0]}, r"updates: shape \(3,\)"),
        ({"updates": np.zeros((3, 0))}, r"updates: shape \(3, 0\)"),
        (
            {"updates": [[1.0, 2.0], [3.0, NAN], [1.0, 2.0]]},
            r"updates: client 1 has nan; allowed: finite numbers, or a",
        ),
        ({"updates": [[1.0, 2.0], [np.inf, 1.0], [1.0, 2.0]]}, r"updates: client 1 has inf"),
        ({"last_selected": [-2, 0, 0]}, r"last_selected: client 0 has -2"),
        ({"last_selected": [-1, 0, 3]}, r"last_selected: client 2 has 3; allowed: .* before this one \(3\)"),
        ({"last_selected": [0.5, 0, 0]}, r"last_selected: .* allowed: integers"),
        ({"times_selected": [0, -1, 0]}, r"times_selected: client 1 has -1; allowed: 0 or more"),
        ({"times_selected": [0, 1]}, r"times_selected: shape \(2,\)"),
        ({"sizes": [1, 0, 1]}, r"sizes: client 1 has 0.0; allowed: finite and above 0"),
        ({"sizes": [1, NAN, 1]}, r"sizes: client 1 has nan"),
        ({"available": [0, 2, 1]}, r"available: int64 is not allowed; allowed: booleans"),
        ({"available": [True]}, r"available: shape \(1,\)"),
        (
            {"losses": np.ma.array([0.5, 1.0, 2.0], mask=[False, True, False])},
            r"losses: a masked array .*`values.filled\(np.nan\)`",
        ),
        ({"losses": ["1", "2", "3"]}, r"losses: cannot be read as numbers \(text\)"),
        ({"losses": np.array([1, 2, 3], "m8[s]")}, r"losses: cannot be read as numbers \(durations\)"),
        ({"losses": [True, False, True]}, r"losses: cannot be read as numbers \(booleans\)"),
        ({"updates": np.ma.zeros((3, 2))}, r"updates: a masked array"),
        ({"updates": np.zeros((3, 2), "M8[D]")}, r"updates: cannot be read as numbers \(dates\)"),
        ({"distances": np.ma.zeros((3, 3))}, r"distances: a masked array"),
        ({"sizes": np.array([1, 2, 3], "M8[D]")}, r"sizes: cannot be read as numbers \(dates\)"),
        ({"sizes": [True, True, True]}, r"sizes: cannot be read as numbers \(booleans\)"),
        ({"available": np.ma.array([True] * 3)}, r"available: a masked array"),
        (
            {"times_selected": np.array([2**63, 0, 0], np.uint64)},
            r"times_selected: .* allowed: integers of up to 63 bits",
        ),
        ({"times_selected": [2**70, 0, 0]}, r"times_selected: .* allowed: integers of up to 63 bits"),
        ({"times_selected": [1e30, 0, 0]}, r"times_selected: .* allowed: integers of up to 63 bits"),
        ({"times_selected": [True, 2, 0]}, r"times_selected: .* allowed: integers"),
        ({"waited": [2**62, 0, 0]}, r"waited: client 0 has 4611686018427387904; allowed: 0 or more, below"),
        ({"last_selected": np.array(["2024-01-01"] * 3, "M8[D]")}, r"last_selected: .* allowed: integers"),
        ({"history": np.ma.zeros((1, 2), int)}, r"history: a masked array"),
        ({"round": 2**70}, r"round: \d+ is not allowed"),
        ({"round": -1}, r"round: -1 is not allowed"),
        ({"round": 1.5}, r"round: 1.5 is not allowed"),
        ({"distances": np.zeros((2, 2))}, r"distances: shape \(2, 2\) is not allowed; allowed: \(3, 3\)"),
        ({"distances": np.ones((3, 3))}, r"distances: client 0 has 1.0, .*; allowed: 0 to oneself"),
        ({"distances": [[0, -1, 1], [-1, 0, 1], [1, 1, 0]]}, r"distances: not all finite and 0 or more"),
        ({"distances": [[0, NAN, 1], [NAN, 0, 1], [1, 1, 0]]}, r"distances: not all finite and 0 or more"),
        ({"distances": [[0, 2, 1], [1, 0, 1], [1, 1, 0]]}, r"distances: not symmetric"),
        ({"distances": [[NAN, 2, NAN], [2, 0, 1], [NAN, 1, 0]]}, r"distances: a client with nan to itself"),
    ],
)
def test_refuses_what_is_wrong_by_name_value_and_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signals(**(GOOD | changes))


def test_refuses_to_guess_how_many_clients_there_are() -> None:
    with pytest.raises(ValueError, match="at least one of them"):
        Signals(round=2)


def test_many_wrong_clients_are_counted() -> None:
    with pytest.raises(ValueError, match=r"client 2 has -1\.0 and 7 more"):
        Signals(losses=-np.ones(10))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"missed_turns": [0, -1]}, "missed_turns: client 1 has -1; allowed: 0 or more"),
        ({"joined": [0, 4]}, r"joined: client 1 has 4; allowed: a round up to this one \(3\)"),
        ({"history": [[3, 0]]}, r"history: \[3, 0\] is not allowed; allowed: a round before this one \(3\)"),
        ({"history": [[0, 2]]}, r"history: \[0, 2\] is not allowed; .* a client below 2"),
        ({"history": [0, 1]}, r"history: shape \(2,\) is not allowed; allowed: \(M, 2\), rows of round and client"),
    ],
)
def test_refuses_a_past_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signals(losses=np.ones(2), round=3, **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"durations": [1.0, 0.0, NAN]}, "durations: client 1 has 0.0; allowed: finite and above 0, or nan"),
        ({"durations": [[1.0]] * 3}, r"durations: shape \(3, 1\) is not allowed; allowed: \(3,\)"),
        ({"lengths": [1.0, -1.0, 1.0]}, "lengths: client 1 has -1.0; allowed: finite and 0 or more, or nan"),
        ({"label_counts": [[1.0, 2.0], [NAN, 1.0], [1.0, 1.0]]}, r"label_counts: client 1 has .*a whole row of nan"),
        ({"label_counts": [[1.0], [-2.0], [1.0]]}, "label_counts: client 1 has .*; allowed: finite and 0 or more"),
        ({"label_counts": [1.0, 2.0, 3.0]}, r"label_counts: shape \(3,\) is not allowed; allowed: \(3, C\)"),
        ({"bias_updates": [[1.0], [np.inf], [1.0]]}, "bias_updates: client 1 has .*; allowed: finite, or a whole"),
        ({"bias_updates": np.zeros((3, 0))}, r"bias_updates: shape \(3, 0\)"),
        ({"durations": ["a", "b", "c"]}, "durations: cannot be read as numbers"),
    ],
)
def test_optional_signals_are_checked_as_the_others(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signals(**(GOOD | changes))


def test_optional_signals_are_missing_unless_they_are_given() -> None:
    signals = Signals(losses=np.ones(3))
    for name in OPTIONAL:
        assert getattr(signals, name) is None
        assert signals.knows(name).tolist() == [False] * 3
    given = Signals(durations=np.array([1.5, NAN, 2.0]), bias_updates=np.array([[NAN] * 2, [-1.0, 1.0], [0.0, 0.0]]))
    assert given.n == 3
    assert given.knows("durations").tolist() == [True, False, True]
    assert given.knows("bias_updates").tolist() == [False, True, True]
    with pytest.raises(ValueError, match="read-only"):
        given.durations[0] = 3  # type: ignore[index]


def test_lengths_come_from_updates_unless_they_are_given() -> None:
    updates = np.array([[3.0, 4.0], [NAN, NAN], [3e200, 0.0]])
    norms = Signals(updates=updates).norms
    assert norms is not None
    assert norms[0] == 5.0
    assert Signals(updates=updates).knows("lengths").tolist() == [True, False, True]
    given = Signals(updates=updates, lengths=np.array([1.0, 2.0, 3.0]))
    assert given.norms is not None
    assert given.norms.tolist() == [1.0, 2.0, 3.0]
    assert Signals(distances=np.zeros((2, 2))).norms is None
