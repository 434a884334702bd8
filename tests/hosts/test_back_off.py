import numpy as np
import pytest

from equifl.hosts.back_off import BackOff


def asked_in(mute: BackOff, rounds: int, *, least: int = 1) -> list[int]:
    """The rounds in which client 7, who never answers, is asked."""
    found = []
    for round in range(rounds):
        if 7 in mute.awake([3, 7], round, least=least):
            found.append(round)
            mute.count(round, answered=[3], silent=[7])
    return found


def test_who_never_answers_is_asked_ever_more_seldom() -> None:
    assert asked_in(BackOff(), 40) == [0, 1, 3, 7, 15, 31]


def test_once_silent_is_not_mute() -> None:
    mute = BackOff()
    mute.count(0, answered=[3], silent=[7])
    assert mute.awake([7, 3], 1, least=0) == [7, 3]
    assert 7 in mute
    assert 3 not in mute


def test_an_answer_ends_it() -> None:
    mute = BackOff()
    asked_in(mute, 8)
    mute.count(8, answered=[7], silent=[])
    assert asked_in(mute, 4) == [0, 1, 3]


def test_an_id_that_is_free_again_begins_anew() -> None:
    mute = BackOff()
    asked_in(mute, 8)
    mute.forget([7, 99])
    assert mute.awake([7], 8, least=0) == [7]


def test_where_all_are_mute_those_are_asked_who_may_be_soonest() -> None:
    mute = BackOff()
    for silent in ([1, 2, 3], [1, 2, 3], [3]):
        mute.count(0, answered=[], silent=silent)
    assert mute.awake([1, 2, 3], 1, least=0) == []
    assert mute.awake([3, 2, 1], 1, least=2) == [2, 1]
    assert asked_in(BackOff(), 4, least=2) == [0, 1, 2, 3]


def test_it_is_restored() -> None:
    whole, parts = BackOff(), BackOff()
    asked_in(parts, 5)
    again = BackOff()
    again.load(parts.state())
    assert [7 in again.awake([3, 7], round, least=1) for round in range(5, 9)] == [False, False, True, True]
    whole.load({})  # of an earlier version
    assert asked_in(whole, 3) == [0, 1]
    other = BackOff("other")
    other.load(parts.state())  # which are not its own
    assert asked_in(other, 3) == [0, 1]
    with pytest.raises(ValueError, match=r"`back_off\.until` is missing"):
        again.load({name: array for name, array in parts.state().items() if "until" not in name})
    with pytest.raises(ValueError, match="not of the same length"):
        again.load({**parts.state(), "back_off.until": np.zeros(9, np.int64)})


def test_who_answers_is_who_was_not_silent_when_last_asked() -> None:
    mute = BackOff()
    mute.count(0, answered=[3], silent=[7])
    assert [client for client in (7, 3, 5) if client not in mute] == [3, 5]
    mute.count(9, answered=[7], silent=[])
    assert not any(client in mute for client in (7, 3, 5))
