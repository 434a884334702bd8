"""What the lanes remember; the round loop's own tests go through it too."""

from typing import Any

import numpy as np
import pytest
import torch

from equifl.distances import UpdateDistances
from equifl.selectors import DivFL, Uniform
from equifl.sim import memory
from equifl.sim.lanes import Lane
from equifl.sim.memory import Memory
from equifl.store import SignalStore

CPU = torch.device("cpu")


def remembering(selectors: list[Any]) -> Memory:
    world: Any = None  # nobody looks at it here
    return Memory([Lane("some", s, world, SignalStore(4), []) for s in selectors], 3, None, CPU)


def test_distances_that_came_without_their_digits_are_computed_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_of_two = remembering([Uniform(), DivFL()])
    updates = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    none = torch.zeros(4)
    monkeypatch.setattr(memory, "renew", lambda *_, wait: torch.tensor(5))  # nothing is renewed, and it says so
    news = memory_of_two.keep(np.ones(4, np.int64), np.arange(4), torch.from_numpy(updates), none, none)
    memory_of_two.learn(0, [news])
    np.testing.assert_allclose(memory_of_two.distances[1], UpdateDistances(updates).matrix(), rtol=1e-5)
    monkeypatch.setattr(memory, "distances", None)  # once is enough
    memory_of_two.learn(1, [])
    assert list(memory_of_two.distances) == [1]


def test_what_selectors_see_is_not_changed_by_later_news() -> None:
    own = remembering([DivFL()])
    rng, none = np.random.default_rng(0), torch.zeros(4)
    seen = []
    for _ in range(2):
        updates = torch.from_numpy(rng.normal(size=(4, 3)).astype(np.float32))
        own.learn(0, [own.keep(np.zeros(4, np.int64), np.arange(4), updates, none, none)])
        seen.append((own.distances[0], own.distances[0].copy()))
    for now, then in seen:
        np.testing.assert_array_equal(now, then)
    assert not np.array_equal(seen[0][0], seen[1][0])
