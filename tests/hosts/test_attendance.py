from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.hosts.attendance import Attendance
from equifl.metrics import longest_wait, participation

ROUNDS = st.lists(
    st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5), max_size=3)), min_size=1, max_size=12
)


def waits_while_present(rounds: list[tuple[set[int], set[int]]], client: int) -> int:
    waited = longest = 0
    for present, cohort in rounds:
        waited = 0 if client in cohort else waited + (client in present)
        longest = max(longest, waited)
    return longest


@given(ROUNDS)
def test_the_figures_are_those_of_all_rounds_read_back(rounds: list[tuple[set[int], set[int]]]) -> None:
    every, there = Attendance(), Attendance("present")
    for present, cohort in rounds:
        for one in (every, there):
            one.count(cohort, np.array(sorted(present), np.int64), 6)
    cohorts = [sorted(cohort) for _, cohort in rounds]
    times = np.array([sum(client in cohort for cohort in cohorts) for client in range(6)])
    assert every.figures(times, np.arange(6)) == (participation(times, cohorts), 6)
    here = sorted(rounds[-1][0])
    expected = participation(times[here] if here else [0], [])
    expected["longest_wait"] = float(max([waits_while_present(rounds, client) for client in here], default=0))
    assert there.figures(times, np.arange(6)) == (expected, len(here))


def test_who_joins_later_has_waited_since_the_start_or_not_at_all() -> None:
    every, there = Attendance(), Attendance("present")
    for one, longest in ((every, 3), (there, 1)):
        for _ in range(2):
            one.count([0], np.array([0]), 1)
        assert one.count([0], np.array([0, 1]), 2) == {"joined": [1], "left": []}
        assert one.count([1], np.array([1]), 2) == {"joined": [], "left": [0]}
        assert one.figures(np.array([3, 1]), np.array([1]))[0]["longest_wait"] == longest
    assert longest_wait([[0], [0], [0], [1]], 2) == 3


def test_an_id_that_is_free_again_starts_anew() -> None:
    for counted, waited in (("all", 3), ("present", 0)):
        one: Any = Attendance(counted)  # type: ignore[arg-type]
        for _ in range(3):
            one.count([], np.array([0]), 1)
        one.forget([0, 7])
        assert one.state()["attendance.waited"].tolist() == [waited]
        assert one.count([0], np.array([0]), 1)["joined"] == [0], "somebody else"


def test_its_state_is_restored_and_checked() -> None:
    one = Attendance()
    one.count([0], np.array([0, 1]), 3)
    again = Attendance()
    again.load(one.state(), 3, 1)
    for each in (one, again):
        assert each.count([2], np.array([2]), 3) == {"joined": [2], "left": [0, 1]}
    assert again.figures(np.array([1, 0, 1]), np.arange(3)) == one.figures(np.array([1, 0, 1]), np.arange(3))
    for wrong in ({}, one.state() | {"attendance.longest": np.zeros(2, np.int64)}):
        with pytest.raises(ValueError, match=r"`attendance.*` is missing, or no list of 3"):
            again.load(wrong, 3, 1)
