"""What servers remember; the round loop's own tests go through it too."""

from typing import Any

import numpy as np
import pytest
import torch

from equifl._numerics.distances import UpdateDistances
from equifl.selectors import DivFL, PowerOfChoice, Uniform
from equifl.sim.engines.torch.transfers import to_host
from equifl.sim.loop import client_memory as memory
from equifl.sim.loop.client_memory import ClientMemory
from equifl.sim.loop.runs import Run
from equifl.sketch import CountSketch
from equifl.store import SignalStore

CPU = torch.device("cpu")


def remembering(selectors: list[Any]) -> ClientMemory:
    environment: Any = None  # nobody looks at it here
    return ClientMemory([Run("some", s, environment, SignalStore(4), []) for s in selectors], 3, None, CPU)


def test_distances_that_came_without_their_digits_are_computed_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_of_two = remembering([Uniform(), DivFL()])
    updates = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    none = torch.zeros(4)
    monkeypatch.setattr(memory, "renew", lambda *_, wait: torch.tensor(5))  # nothing is renewed, and it says so
    news = memory_of_two.keep(np.ones(4, np.int64), np.arange(4), torch.from_numpy(updates), none, none)
    memory_of_two.store(0, [news])
    np.testing.assert_allclose(memory_of_two.distances[1], UpdateDistances(updates).matrix(), rtol=1e-5)
    monkeypatch.setattr(memory, "distances", None)  # once is enough: nobody may call it again
    monkeypatch.setattr(memory, "renew", lambda *_, wait: torch.tensor(0))
    memory_of_two.store(1, [memory_of_two.keep(np.ones(1, np.int64), np.arange(1), torch.ones(1, 3), none, none)])
    assert list(memory_of_two.distances) == [1]


@pytest.mark.parametrize("most", [0, 15, 1000])
def test_very_many_sketches_are_learnt_in_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_WAITING", most)
    environment: Any = None
    sketch = CountSketch(length=5)
    runs = [Run("some", s, environment, SignalStore(6, sketch=sketch), []) for s in (PowerOfChoice(), DivFL())]
    own = ClientMemory(runs, 3, 5, CPU)
    updates, losses = torch.randn(6, 3), torch.arange(6.0)
    waits = 0

    def counted(*tensors: torch.Tensor) -> list[Any]:
        nonlocal waits
        waits += 1
        return to_host(*tensors)

    monkeypatch.setattr(memory, "to_host", counted)
    parts = [(run, np.arange(start, start + 2)) for run in (0, 1) for start in (0, 2, 4)]
    given = ((np.full(2, run), ids, updates[ids], losses[ids], losses[ids]) for run, ids in parts)
    own.store_of_everyone(0, (own.keep(*each) for each in given))
    assert waits == {0: 3, 15: 2, 1000: 1}[most]
    assert runs[0].store.signals(0).losses.tolist() == [0, 1, 2, 3, 4, 5]
    assert runs[0].store.signals(0).updates is None
    found: Any = runs[1].store.signals(0).updates
    np.testing.assert_allclose(found, sketch.rows(updates.numpy()), rtol=1e-6)


def test_what_selectors_see_is_not_changed_by_later_news() -> None:
    own = remembering([DivFL()])
    rng, none = np.random.default_rng(0), torch.zeros(4)
    seen = []
    for _ in range(2):
        updates = torch.from_numpy(rng.normal(size=(4, 3)).astype(np.float32))
        own.store(0, [own.keep(np.zeros(4, np.int64), np.arange(4), updates, none, none)])
        seen.append((own.distances[0], own.distances[0].copy()))
    for now, then in seen:
        np.testing.assert_array_equal(now, then)
    assert not np.array_equal(seen[0][0], seen[1][0])
