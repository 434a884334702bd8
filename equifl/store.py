"""SignalStore: the server's memory between rounds.

Longer than 300 lines because it is one class: each of its methods keeps several arrays, the history and the snapshot
in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, integers, numbers, plain, require, require_each, shaped
from equifl.guard import guarded
from equifl.signals import (
    LAST_ROUND,
    OPTIONAL,
    Bools,
    Floats,
    Ints,
    Signals,
    check_available,
    check_losses,
    check_optional,
    check_sizes,
    check_updates,
)
from equifl.sketch import CountSketch
from equifl.sketch_file import SketchFile, open_sketches

_MOST = 2**40  # clients, which no machine has the memory for: so large a number is a mistake
_TURNS = 2  # a client that waits longer counts as absent; one turn = the rounds it takes to select all clients once
_UNKNOWN = {"_losses": np.nan, "_last_selected": -1, "_times_selected": 0, "_sizes": 1.0}
_UNKNOWN |= {"_given_sizes": np.nan, "_available": True}


class SignalStore:
    """The server's memory between rounds: `observe` writes it, `signals(round)` reads it.

    Report a selected client with `round=`, even if it sent nothing; that counts as a selection, once a round. Report
    other news (a probe, a late reply) without it. All arguments are checked before anything is changed.

    The store also counts turns, as in fair queueing. A client that is absent in a round, by the last `available` given
    to `signals`, counts as having had at least the fewest turns of the clients present, less `catch_up`. So does a
    client that joins later, and one that was not selected for two turns because it never replies. A short absence is
    thus compensated, and a client that returns after a long one is not selected in every round.

    Args:
        clients: number of clients; `grow` adds more.
        catch_up: turns that a client that was absent, or joins, may be behind the others, 0 or more.
        sizes: (N,) training examples, where the server knows them itself (default 1).
        guard: whether to limit what losses, sizes and lengths of updates are worth to the clients that report them
            (`equifl.guard`). Sizes given above are the server's own, and stay.
        sketch: the sketch that updates are made with, if any; sketches of another length, or another stated seed, are
            rejected.
        dtype: of the stored updates: float32, or float16, which has three digits and a maximum of 65,504.
        memory_map: a file to keep the sketches in instead of memory. Its disk space is allocated now. An existing file
            is reused with its content, if it has the same sketch, dtype and number of clients; rows that a crash left
            half-written are unknown, with a warning.

    >>> store = SignalStore(3)
    >>> store.observe([0, 2], losses=[0.5, 1.5], updates=[[1.0, 0.0], [0.0, 1.0]], round=0)
    >>> store.observe([1], round=0)  # selected too, but never replied
    >>> store.signals(1).losses.tolist(), store.signals(1).times_selected.tolist()
    ([0.5, nan, 1.5], [1, 1, 1])
    """

    def __init__(
        self,
        clients: int,
        *,
        catch_up: int = 1,
        sizes: ArrayLike | None = None,
        guard: bool = False,
        sketch: CountSketch | None = None,
        dtype: str = "float32",
        memory_map: str | PathLike[str] | None = None,
    ) -> None:
        n = integer("clients", clients, least=1, most=_MOST)
        self.catch_up = integer("catch_up", catch_up, least=0)
        self._dtype = np.float16 if dtype == "float16" else np.float32
        require("dtype", dtype, dtype in ("float16", "float32"), "float16 or float32")
        self._losses: Floats = np.full(n, np.nan)
        self._last_selected = np.full(n, -1, np.int64)
        self._times_selected = np.zeros(n, np.int64)
        self._missed_turns, self._waited, self._joined = (np.zeros(n, np.int64) for _ in range(3))
        self._history: Ints | None = np.zeros((0, 2), np.int64)  # None: incomplete
        self._fewest = 0  # fewest turns of the clients present, so far
        self._next = 0  # the round after the last selection
        self._present: tuple[int, Bools] | None = None  # the round given to `signals` last, and who was available
        self._sizes: Floats = check_sizes(n, sizes).copy()
        self._given_sizes = np.full(n, np.nan) if sizes is None else self._sizes.copy()
        self._available = np.ones(n, bool)
        self._optional: dict[str, Floats] = {}  # the signals of `OPTIONAL` that anybody has reported
        require("guard", guard, isinstance(guard, bool), "True or False")
        self.guard = guard
        self.sketch = sketch
        self._updates: Floats | None = None
        self._file: SketchFile | None = None  # whose rows are the updates
        if memory_map is not None:
            if sketch is None:
                raise ValueError(
                    "sketch: missing; a memory_map needs it, to say how long its rows are and of which seed"
                )
            self._file = open_sketches(Path(memory_map), n, sketch, self._dtype)
            self._updates = self._file.rows

    def __len__(self) -> int:
        return len(self._losses)

    def observe(
        self,
        ids: ArrayLike,
        *,
        losses: ArrayLike | None = None,
        updates: ArrayLike | None = None,
        sizes: ArrayLike | None = None,
        available: ArrayLike | None = None,
        round: int | None = None,
        sketch: CountSketch | None = None,
        durations: ArrayLike | None = None,
        label_counts: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        bias_updates: ArrayLike | None = None,
    ) -> None:
        """Store what these clients reported: one row of each array a client, in the order of `ids`.

        `sketch` is the one that `updates` were made with, if the sender states it; it must equal the store's. The
        signals after it are for the selectors that name them in `needs` (`Signals` says what they are).
        """
        who = self._ids(ids)
        m = len(who)
        new_losses = None if losses is None else check_losses(m, losses, ids=who)
        new_updates = None if updates is None else self._checked_updates(updates, who, sketch)
        new_sizes = None if sizes is None else check_sizes(m, sizes, ids=who)
        new_available = None if available is None else check_available(m, available)
        others = zip(OPTIONAL, (durations, label_counts, lengths, bias_updates), strict=True)
        new = {name: self._checked_optional(name, values, who) for name, values in others if values is not None}
        if round is not None:
            now = integer("round", round, least=0, most=LAST_ROUND - 2)
            last = self._last_selected[who]
            allowed = f"{now} or before; to report late news, leave round out"
            require_each("last selection", last, last <= now, allowed, ids=who)
        if new_updates is not None and m and self._updates is None:
            self._updates = np.full((len(self), new_updates.shape[1]), np.nan, self._dtype)  # may lack memory
        room = {  # may lack memory
            name: np.full((len(self), *array.shape[1:]), np.nan)
            for name, array in new.items()
            if name not in self._optional
        }
        # From here on nothing can fail.
        self._optional |= room
        if new_losses is not None:
            self._losses[who] = new_losses
        if new_updates is not None and m:
            self._write_updates(who, new_updates)
        if new_sizes is not None:
            self._sizes[who] = new_sizes
        for name, array in new.items():
            self._optional[name][who] = array
        if new_available is not None:
            self._available[who] = new_available
        if round is not None:
            self._count(who[last < now], now)

    def _count(self, who: Ints, now: int) -> None:
        """Count a selection of these clients in round `now`, and the turns that absent clients missed."""
        if not len(who):
            return
        self._times_selected[who] += 1
        self._last_selected[who] = now
        if self._history is not None:
            self._history = _longer(self._history, len(self._history) + len(who), 0)
            self._history[len(self._history) - len(who) :] = np.column_stack([np.full(len(who), now), who])
        first = now >= self._next  # of the reports on this round: a cohort may be reported client by client
        self._next = max(self._next, now + 1)
        present = self._available
        if self._present is not None and self._present[0] == now:
            present = np.ones(len(self), bool)  # clients that joined since
            present[: len(self._present[1])] = self._present[1]
        self._waited[present] += first
        self._waited[who] = 0
        often = present & (self._waited <= _TURNS * -(-int(present.sum()) // len(who))) & (self._joined < max(now, 1))
        if often.any():
            fewest = int((self._times_selected + self._missed_turns)[often].min())
            self._fewest = max(self._fewest, fewest)
        missed = self._least_turns - self._times_selected
        self._missed_turns[~often] = np.maximum(self._missed_turns, missed)[~often]

    @property
    def _least_turns(self) -> int:
        """Turns that an absent or new client counts as having had."""
        return max(0, self._fewest - self.catch_up)

    def grow(self, clients: int) -> None:
        """Extend the store to this many clients in all; the new ones, at the end, are unknown.

        >>> store = SignalStore(2)
        >>> store.grow(4)
        >>> store.signals(0).n
        4
        """
        n = integer("clients", clients, least=len(self), most=_MOST)
        if n == len(self):
            return
        longer = {name: _longer(getattr(self, name), n, fill) for name, fill in self._unknown.items()}
        if self._file is not None:
            self._file = self._file.grow(n)
            longer["_updates"] = self._file.rows
        elif self._updates is not None:
            longer["_updates"] = _longer(self._updates, n, np.nan)
        optional = {name: _longer(array, n, np.nan) for name, array in self._optional.items()}
        # From here on nothing can fail.
        for name, array in longer.items():
            setattr(self, name, array)
        self._optional = optional

    def forget(self, ids: ArrayLike) -> None:
        """Reset these clients to unknown and never selected, so that their ids can be given to others.

        >>> store = SignalStore(2)
        >>> store.observe([0, 1], losses=[0.5, 1.5], round=0)
        >>> store.forget([1])
        >>> store.signals(1).losses.tolist(), store.signals(1).times_selected.tolist()
        ([0.5, nan], [1, 0])
        """
        who = self._ids(ids)
        for name, fill in self._unknown.items():
            getattr(self, name)[who] = fill
        for array in self._optional.values():
            array[who] = np.nan
        if self._history is not None:
            self._history = self._history[~np.isin(self._history[:, 1], who)]
        if self._updates is not None:
            self._write_updates(who, np.full((len(who), self._updates.shape[1]), np.nan, self._dtype))

    @property
    def _unknown(self) -> dict[str, float]:
        """The initial values of a client that joins now."""
        return _UNKNOWN | {"_missed_turns": self._least_turns, "_waited": 0, "_joined": self._next}

    @property
    def times_selected(self) -> Ints:
        """(N,) how often each client was selected so far; a copy."""
        return self._times_selected.copy()

    def signals(
        self, round: int, *, available: ArrayLike | None = None, distances: ArrayLike | None = None
    ) -> Signals:
        """`Signals` at the start of round `round`; `available` replaces the stored one for this round.

        `distances` are passed on, for a caller that keeps the updates and their pairwise distances elsewhere; a guard
        limits them only if `lengths` were reported, too. Only the short arrays are copied, and updates if a guard
        shortens any; else `updates` is the store's own memory, read-only, so use the value before the next `observe`.
        """
        present = None if available is None else check_available(len(self), available)
        signals = Signals(
            losses=self._losses.copy(),
            updates=self._updates,
            last_selected=self._last_selected.copy(),
            times_selected=self._times_selected.copy(),
            missed_turns=self._missed_turns.copy(),
            waited=self._waited.copy(),
            joined=self._joined.copy(),
            history=self._history,
            sizes=self._sizes.copy(),
            available=self._available.copy() if present is None else present,
            round=round,
            distances=distances,  # type: ignore[arg-type]
            **{name: array.copy() for name, array in self._optional.items()},
        )
        if self.guard:
            signals = guarded(signals, given_sizes=self._given_sizes)
        if present is not None and present.any():
            self._present = signals.round, present.copy()
        return signals

    def state_dict(self, *, history: bool = True) -> dict[str, NDArray[Any]]:
        """A copy of the whole memory as plain arrays: `np.savez(path, **state)`, or `.tolist()` each for JSON.

        Sketches in a memory map are not included: they stay in their file, which is flushed. Without `history`, all
        selections so far, it does not grow with the rounds.
        """
        state: dict[str, NDArray[Any]] = {
            "losses": self._losses.copy(),
            "last_selected": self._last_selected.copy(),
            "times_selected": self._times_selected.copy(),
            "missed_turns": self._missed_turns.copy(),
            "waited": self._waited.copy(),
            "joined": self._joined.copy(),
            "progress": np.array([self._fewest, self._next]),
            "sizes": self._sizes.copy(),
            "available": self._available.copy(),
        }
        state |= {name: array.copy() for name, array in self._optional.items()}
        if history and self._history is not None:
            state["history"] = self._history.copy()
        if self._file is not None:
            self._file.flush()
        elif self._updates is not None:
            state["updates"] = self._updates.copy()
        if self.sketch is not None:
            state["sketch"] = np.array([self.sketch.length, self.sketch.seed])
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore what `state_dict` returned, from arrays or lists; if any part is invalid, nothing changes.

        A state of an older version has no turns: all clients then count as always present. Nor has it a history, which
        then stays unknown.
        """
        wanted = {"losses", "last_selected", "times_selected", "sizes", "available"}
        optional = {"missed_turns", "waited", "joined", "history", "progress", "updates", "sketch", *OPTIONAL}
        if not wanted <= set(state) <= wanted | optional:
            raise ValueError(
                f"state: keys {sorted(state)} are not allowed; allowed: {sorted(wanted)}, and {sorted(optional)}"
            )
        if "sketch" in state:
            length, seed = shaped("sketch", integers("sketch", state["sketch"]), (2,)).tolist()
            self._require_sketch(CountSketch(length=length, seed=seed))
        shaped("losses", plain("losses", state["losses"]), (len(self),))
        given: dict[str, Any] = {name: values for name, values in state.items() if name not in ("sketch", "progress")}
        if "updates" in given:
            with np.errstate(over="ignore"):  # values too large for the type become infinite and are rejected below
                given["updates"] = numbers("updates", given["updates"], booleans=False).astype(self._dtype)
        checked = Signals(**given, round=np.iinfo(np.int64).max)
        if checked.updates is not None and self.sketch is not None:
            shaped("updates", checked.updates, (len(self), self.sketch.length))
        so_far = [checked.turns.min(), checked.last_selected.max() + 1]
        fewest, following = shaped("progress", integers("progress", state.get("progress", so_far)), (2,)).tolist()
        ok = 0 <= fewest < LAST_ROUND and so_far[1] <= following < LAST_ROUND
        require("progress", [fewest, following], ok, f"0 or more, {so_far[1]} or more, both below {LAST_ROUND}")
        # From here on nothing can fail.
        self._losses, self._last_selected = checked.losses.copy(), checked.last_selected.copy()
        self._times_selected, self._sizes = checked.times_selected.copy(), checked.sizes.copy()
        self._missed_turns, self._waited = checked.missed_turns.copy(), checked.waited.copy()
        self._joined = checked.joined.copy()
        self._history = None if checked.history is None else checked.history.copy()
        if self._history is None and not checked.times_selected.any():
            self._history = np.zeros((0, 2), np.int64)
        self._fewest, self._next, self._present = fewest, following, None
        self._available = checked.available.copy()
        given_too = {name: getattr(checked, name) for name in OPTIONAL}
        self._optional = {name: array.copy() for name, array in given_too.items() if array is not None}
        if self._file is None:
            self._updates = given.get("updates")
        elif checked.updates is not None:
            self._file.write(np.arange(len(self)), checked.updates)

    def _write_updates(self, who: Ints, updates: Floats) -> None:
        if self._file is not None:
            self._file.write(who, updates)
        elif self._updates is not None:
            self._updates[who] = updates

    def _checked_updates(self, updates: ArrayLike, who: Ints, sketch: CountSketch | None) -> Floats:
        if sketch is not None:
            self._require_sketch(sketch)
        news = check_updates(len(who), updates, ids=who, dtype=self._dtype)
        if self.sketch is not None:
            return shaped("updates", news, (len(who), self.sketch.length))
        return news if self._updates is None else shaped("updates", news, (len(who), self._updates.shape[1]))

    def _checked_optional(self, name: str, values: ArrayLike, who: Ints) -> Floats:
        news = check_optional(name, len(who), values, ids=who)
        stored = self._optional.get(name)
        return news if stored is None else shaped(name, news, (len(who), *stored.shape[1:]))

    def _require_sketch(self, sketch: CountSketch) -> None:
        require("sketch", sketch, isinstance(sketch, CountSketch), "a CountSketch")
        if self.sketch is None:
            raise ValueError(f"sketch: {sketch} is not allowed; allowed: none, as this store was made without one")
        require("sketch.length", sketch.length, sketch.length == self.sketch.length, f"{self.sketch.length}")
        require("sketch.seed", sketch.seed, sketch.seed == self.sketch.seed, f"{self.sketch.seed}")

    def _ids(self, ids: ArrayLike) -> Ints:
        who = integers("ids", ids)
        if who.ndim != 1:
            raise ValueError(f"ids: shape {who.shape} is not allowed; allowed: one dimension")
        n = len(self)
        if ((who < 0) | (who >= n)).any():
            raise ValueError(f"ids: {who[(who < 0) | (who >= n)][:3].tolist()} not allowed; allowed: 0 to {n - 1}")
        values, counts = np.unique(who, return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"ids: {values[counts > 1][:3].tolist()} more than once; allowed: each client once")
        return who


def _longer(array: NDArray[Any], n: int, fill: float) -> NDArray[Any]:
    """The array with `fill` up to row n. Capacity doubles, so that clients may join one by one."""
    room = array if array.base is None else array.base
    if len(room) < n:
        room = np.empty((max(n, 2 * len(array)), *array.shape[1:]), array.dtype)
        room[: len(array)] = array
    room[len(array) : n] = fill  # rows that no view shows yet
    return room[:n]
