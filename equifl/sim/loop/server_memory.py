"""The memory of the server rule of every run, as plain arrays with a row a run: for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_PARTS, _TENSOR, _ARRAY = "server.parts", "server.tensor.", "server.array."


def memories_to_state(memories: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Each memory is None, or a tuple or dict of tensors and arrays, of the same shapes in all runs.

    >>> memories_to_state([None, (np.ones(2),)])
    {'server.parts': array([-1,  1]), 'server.array.0': array([[0., 0.],
           [1., 1.]])}
    """
    named = [None if memory is None else _named(memory) for memory in memories]
    names = dict.fromkeys(name for parts in named for name in parts or ())
    state = {_PARTS: np.array([-1 if parts is None else len(parts) for parts in named])}
    for name in names:
        found = [None if parts is None else parts.get(name) for parts in named]
        empty = np.zeros_like(next(array for array in found if array is not None))
        state[name] = np.stack([empty if array is None else array for array in found])
    return state


def memories_layout(state: Mapping[str, NDArray[Any]], runs: int) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """The type and shape that these arrays of a checkpoint must have; only the rule knows what a row is."""
    names = [name for name in state if name.startswith((_TENSOR, _ARRAY))]
    return {_PARTS: (np.int64, (runs,))} | {
        name: (state[name].dtype, (runs, *state[name].shape[1:])) for name in names
    }


def memories_of_state(state: Mapping[str, NDArray[Any]], device: torch.device) -> list[Any]:
    """The memories that `memories_to_state` was given, tensors on this device."""
    names = [name for name in state if name.startswith((_TENSOR, _ARRAY))]
    memories: list[Any] = []
    for run, parts in enumerate(state[_PARTS].tolist()):
        if parts not in (-1, len(names)):
            raise ValueError(f"checkpoint: has {len(names)} arrays of the server rule's memory, expected {parts}")
        found = {}
        for name in names:
            array = np.array(state[name][run])
            tensor = name.startswith(_TENSOR)
            found[name.split(".", 2)[2]] = torch.from_numpy(array).to(device) if tensor else array
        if all(map(str.isdecimal, found)):
            memories.append(tuple(found[str(i)] for i in range(parts)) if parts >= 0 else None)
        else:
            memories.append(found if parts >= 0 else None)
    return memories


def _named(memory: Any) -> dict[str, NDArray[Any]]:
    parts = dict(zip(map(str, range(len(memory))), memory, strict=True)) if type(memory) is tuple else memory
    names = type(parts) is dict and (type(memory) is tuple or all(str(name).isidentifier() for name in parts))
    if not names or not all(isinstance(part, Tensor | np.ndarray | np.generic) for part in parts.values()):
        inside = sorted({type(part).__name__ for part in parts.values()}) if type(parts) is dict else []
        raise ValueError(
            f"aggregator: its memory is a {type(memory).__name__} of {', '.join(inside) or 'unknown parts'}; allowed: "
            "None, a tuple of arrays, or a dict of arrays by plain names"
        )
    arrays = {_ARRAY + name: np.asarray(part) for name, part in parts.items() if not isinstance(part, Tensor)}
    tensors = {_TENSOR + name: part.detach().cpu().numpy() for name, part in parts.items() if isinstance(part, Tensor)}
    return tensors | arrays
