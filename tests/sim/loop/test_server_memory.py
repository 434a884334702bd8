from typing import Any

import numpy as np
import pytest
import torch

from equifl.sim.loop.server_memory import memories_layout, memories_of_state, memories_to_state


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return isinstance(other, tuple) and all(map(same, one, other)) and len(one) == len(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(part, other[name]) for name, part in one.items())
    if one is None:
        return other is None
    return type(one) is type(other) and one.dtype == other.dtype and one.tolist() == other.tolist()


@pytest.mark.parametrize(
    "memories",
    [
        [None, None],
        [(torch.ones(3), torch.tensor(2)), None],
        [None, {"m": torch.rand(2, 3).double(), "steps": np.array(4), "seen": np.arange(3)}],
        [(torch.zeros(2),), (torch.ones(2),)],
    ],
)
def test_memories_come_back_as_they_were(memories: list[Any]) -> None:
    state = memories_to_state(memories)
    assert all(len(array) == 2 for array in state.values())  # a row a run, as clusters cut checkpoints
    for name, (dtype, shape) in memories_layout(state, 2).items():
        assert (state[name].dtype, state[name].shape) == (dtype, shape)
    for found, memory in zip(memories_of_state(state, torch.device("cpu")), memories, strict=True):
        assert same(found, memory)


@pytest.mark.parametrize(
    "memory", [3, [torch.ones(2)], (1.0, torch.ones(2)), {0: torch.ones(2)}, {"a b": torch.ones(1)}]
)
def test_a_memory_that_no_checkpoint_holds_is_refused(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"aggregator: its memory is .*; allowed: None, a tuple of arrays, or a dict"):
        memories_to_state([memory])


def test_a_part_that_went_missing_is_noticed() -> None:
    state = memories_to_state([{"m": torch.ones(2), "v": torch.ones(2)}])
    del state["server.tensor.v"]
    with pytest.raises(ValueError, match="has 1 arrays of the server rule's memory, expected 2"):
        memories_of_state(state, torch.device("cpu"))
