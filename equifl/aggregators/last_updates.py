"""The last update of every client, for rules that remember it: whole, in half precision, or in a file.

In a file every client has two rows, and only one of them is current. A new update goes into the row that the last
checkpoint does not use. So a checkpoint and the rows that it names stay together, wherever the process is killed.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from equifl._numerics.checksums import checksums
from equifl.aggregators.base import Array, weighted_sum
from equifl.signals import Ints

KEEP = ("whole", "float16", "file")
_AT_A_TIME = 2**22  # numbers

State: TypeAlias = dict[str, Any]  # a part of a rule's memory


class LastUpdates:
    """The rows y_i of a rule's memory, 0 before the first: `y[ids]`, `y[ids] = updates`, `y.weighted_sum(p)`.

    >>> y = LastUpdates(empty("float16", 3, np.zeros((1, 2), np.float32)), np.zeros((1, 2), np.float32))
    >>> y[np.array([2])] = np.array([[1.0, 2.0]], np.float32)
    >>> y[np.array([0, 2])].tolist(), y.weighted_sum(np.array([0.5, 0.25, 0.25])).tolist()
    ([[0.0, 0.0], [1.0, 2.0]], [0.25, 0.5])
    """

    def __init__(self, state: State, like: Array) -> None:
        self._state, self._like = state, like

    def __len__(self) -> int:
        return len(self._state["slots"] if "slots" in self._state else self._state["updates"])

    def __getitem__(self, ids: Any) -> Array:
        rows, like = self._state["updates"], self._like
        if "slots" in self._state:
            found = np.asarray(rows[self._state["slots"][ids], np.arange(len(self))[ids]])
            return found.astype(like.dtype) if isinstance(like, np.ndarray) else _tensor(found, like)
        if "scales" in self._state:
            wide = rows[ids].astype(like.dtype) if isinstance(like, np.ndarray) else rows[ids].to(like.dtype)
            return wide * self._state["scales"][ids][:, None]
        return rows[ids]

    def __setitem__(self, ids: Ints, updates: Array) -> None:
        state = self._state
        if "slots" in state:
            found = updates if isinstance(updates, np.ndarray) else updates.detach().cpu().numpy()
            news = np.ascontiguousarray(found, np.float32)
            free = 1 - state["saved"][ids]
            state["updates"][free, ids] = news
            state["slots"][ids], state["checks"][ids] = free, checksums(news)
        elif "scales" in state:
            largest = abs(updates).max(1) if isinstance(updates, np.ndarray) else updates.abs().amax(1)
            scales = largest + (largest == 0)  # so that the numbers of each row reach from -1 to 1
            state["updates"][ids], state["scales"][ids] = _half(updates / scales[:, None]), scales
        else:
            state["updates"][ids] = updates

    def clear(self, ids: Ints) -> None:
        """Make these rows 0."""
        rows = self._state["updates"]
        self[ids] = np.zeros((len(ids), rows.shape[-1]), np.float32) if "slots" in self._state else rows[ids] * 0

    def weighted_sum(self, weights: Array) -> Array:
        """(d,) sum over all clients of weights_i y_i, some clients at a time."""
        found: Any = 0.0
        for some in self._parts():
            found = found + weighted_sum(self[some], weights[some])
        return found

    def _parts(self) -> Iterator[slice]:
        whole = "slots" not in self._state and "scales" not in self._state
        step = len(self) if whole else max(1, _AT_A_TIME // max(1, self._like.shape[1]))
        return (slice(start, start + step) for start in range(0, len(self), step))


def empty(keep: str, clients: int, like: Array, rows: Any = None) -> State:
    """All rows 0; `rows`, for a file, is the map to keep them in: None = of a file without a name."""
    d = like.shape[1]
    if keep == "file":
        mapped = map_rows(None, 1, clients, d)[0] if rows is None else rows
        slots = np.zeros(clients, np.int64)
        of_zeros = np.repeat(checksums(np.zeros((1, d), np.float32)), clients)
        return {"updates": mapped, "slots": slots, "saved": slots.copy(), "checks": of_zeros}
    if keep == "whole":
        return {"updates": _zeros(like, (clients, d))}
    return {"updates": _zeros(_half(like[:0]), (clients, d)), "scales": _zeros(like, (clients,)) + 1}


def grown(state: State, clients: int) -> State:
    """The same rows for more clients, the new ones 0."""
    old = len(state["slots"] if "slots" in state else state["updates"])
    if clients <= old:
        return state
    if "slots" in state:
        raise ValueError(
            f"population: {clients} is not allowed; allowed: at most {old}, for which the file was made; give "
            "Replies(population=...) from the first round on the most clients that there will be"
        )
    more = {}
    for name, rows in state.items():
        more[name] = _zeros(rows, (clients, *rows.shape[1:])) + (name == "scales")
        more[name][:old] = rows
    return more


def map_rows(path: Path | None, runs: int, clients: int, parameters: int) -> Any:
    """(runs, 2, clients, parameters) float32 in a file, made if there is none; its disk space is taken at once.

    Without a path the file has no name, and is gone with the process.
    """
    shape = runs, 2, clients, parameters
    if path is None:
        with tempfile.NamedTemporaryFile(prefix="equifl-", suffix=".npy") as unnamed:
            return _made(Path(unnamed.name), shape)
    if not path.exists():
        part = path.with_name(f"{path.name}.tmp")
        _made(part, shape)
        part.replace(path)
    try:
        found = npy.open_memmap(path, mode="r+")
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if found.shape != shape or found.dtype != np.float32:
        raise ValueError(f"{path}: has {found.dtype} of shape {found.shape}, expected float32 of shape {shape}")
    return found


def saved(state: State) -> None:
    """A checkpoint with this state is on the disk: its rows are kept from now on, the others are free."""
    state["saved"] = state["slots"].copy()


def reopened(state: State, rows: Any) -> State:
    """The state of a checkpoint with the map of its rows, after a check that these are the rows it was made with."""
    current = {**state, "updates": rows, "saved": state["slots"].copy()}
    y, n = LastUpdates(current, np.zeros((0, rows.shape[2]), np.float32)), len(state["slots"])
    fits = bool(((state["slots"] == 0) | (state["slots"] == 1)).all()) and rows.shape[1] == n
    for some in y._parts() if fits else ():
        fits = fits and bool((checksums(np.ascontiguousarray(y[some])) == state["checks"][some]).all())
    if not fits:
        raise ValueError("checkpoint: the file of the server's memory has other rows than it was made with")
    return current


def _made(path: Path, shape: tuple[int, ...]) -> Any:
    found = npy.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    if hasattr(os, "posix_fallocate"):  # a write to a map cannot say that the disk is full: it ends the process
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                path.unlink()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                message = f"server.aggregate.keep: the disk has no room for {found.nbytes / 2**20:,.0f} MiB"
                raise OSError(error.errno, message, str(path)) from None
    return found


def _zeros(like: Array, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(shape)


def _half(updates: Array) -> Array:
    return updates.astype(np.float16) if isinstance(updates, np.ndarray) else updates.half()


def _tensor(rows: Any, like: Array) -> Array:
    """Rows of a file as a tensor like this one, without an import of PyTorch."""
    return like.new_tensor(rows)
