"""What a worker does, without Ray."""

from typing import Any

import numpy as np
import pytest

from equifl import Signals
from equifl.cluster.shard import Part, Request, Shard
from equifl.objectives import FacilityLocation
from equifl.signals import Floats, Ints

UPDATES = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
NOBODY = np.zeros(0, np.int64)


def part(key: str = "one") -> Part:
    return Part(key, 0, 30, None, [UPDATES], 2**20)


def request(members: list[int], sent: int, candidates: Ints, announced: bool = False) -> Request:
    ids = np.array(members, np.int64)
    rows = UPDATES[candidates]
    return Request(ids, UPDATES[ids[len(ids) - sent :]], candidates, rows[:0] if announced else rows)


def asked(shard: Shard, wanted: Request, of: Part | None = None) -> Any:
    return shard.gains(of or part(), 9.0, wanted)


@pytest.fixture
def shard() -> Shard:
    return Shard(fetch=lambda stored: stored)


def by_one_machine(members: list[int], candidates: Ints) -> Floats:
    function = FacilityLocation(Signals(updates=UPDATES))
    state = function.init()
    for member in members:
        state = function.update(state, member)
    return function.gains(state, candidates)


def test_gains_are_those_of_facility_location(shard: Shard) -> None:
    candidates = np.array([4, 9, 20])
    asked(shard, request([], 0, candidates))
    for count in (1, 2, 3):
        members = [7, 2, 25][:count]
        gains = asked(shard, request(members, 1, candidates))
        np.testing.assert_allclose(gains, by_one_machine(members, candidates), rtol=1e-5)


def test_one_that_has_missed_something_says_so_and_is_told_all(shard: Shard) -> None:
    candidates = np.array([4, 9])
    assert asked(shard, request([7, 2], 1, candidates)) is None
    first = asked(shard, request([7, 2], 2, candidates))
    np.testing.assert_allclose(first, by_one_machine([7, 2], candidates), rtol=1e-5)
    assert asked(shard, request([7, 2], 1, candidates)).tolist() == first.tolist(), "the same question again"
    assert asked(shard, request([8, 2, 3], 1, candidates)) is None, "another cohort"
    assert asked(shard, request([7, 2], 1, candidates), part("two")) is None, "another selection"


def test_what_was_announced_need_not_be_sent(shard: Shard) -> None:
    candidates = np.array([4, 9, 20])
    assert asked(shard, request([], 0, candidates, announced=True)) is None
    shard.foresee(part(), candidates, UPDATES[candidates])
    announced = asked(shard, request([], 0, candidates, announced=True))
    assert announced.tolist() == asked(shard, request([], 0, candidates)).tolist()
    assert asked(shard, request([], 0, np.array([4, 5]), announced=True)) is None


def test_forgets_a_selection_that_is_over_and_no_other(shard: Shard) -> None:
    asked(shard, request([], 0, np.array([1])))
    shard.forget(part("two"))
    assert asked(shard, request([3], 1, np.array([1]))) is not None
    shard.forget(part())
    assert asked(shard, request([3, 4], 1, np.array([1]))) is None


def test_the_value_of_a_cohort_is_the_sum_of_its_gains(shard: Shard) -> None:
    members = np.array([3, 11, 19])
    gains = [asked(shard, request(members[:i].tolist(), i, members[[i]]))[0] for i in range(3)]
    assert shard.value(part(), 9.0, members, UPDATES[members]) == pytest.approx(sum(gains), rel=1e-5)
