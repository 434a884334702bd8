"""The server's memory between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl.checks import integer, integers, require_each, shaped
from equifl.signals import (
    Floats,
    Ints,
    Signals,
    check_available,
    check_losses,
    check_sizes,
    check_updates,
)


class SignalStore:
    """The server's memory between rounds, from which `signals(round)` is made.

    A client that took part is reported with `round=`, which counts as a selection, once a round,
    even if nothing came back; news without a selection (a probe, a late reply) is reported without it.
    Everything is checked before anything is changed.

    >>> store = SignalStore(3)
    >>> store.observe([0, 2], losses=[0.5, 1.5], updates=[[1.0, 0.0], [0.0, 1.0]], round=0)
    >>> store.observe([1], round=0)  # selected too, but never replied
    >>> store.signals(1).losses.tolist(), store.signals(1).times_selected.tolist()
    ([0.5, nan, 1.5], [1, 1, 1])
    """

    def __init__(self, clients: int, *, sizes: ArrayLike | None = None) -> None:
        n = integer("clients", clients, least=1)
        self._losses: Floats = np.full(n, np.nan)
        self._updates: NDArray[np.float32] | None = None
        self._last_selected = np.full(n, -1, np.int64)
        self._times_selected = np.zeros(n, np.int64)
        self._sizes: Floats = check_sizes(n, sizes).copy()
        self._available = np.ones(n, bool)

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
    ) -> None:
        """Remember what was heard of these clients; one row of each array a client, in the order of `ids`."""
        who = self._ids(ids)
        m = len(who)
        new_losses = None if losses is None else check_losses(m, losses, ids=who)
        new_updates = None if updates is None else check_updates(m, updates, ids=who)
        new_sizes = None if sizes is None else check_sizes(m, sizes, ids=who)
        new_available = None if available is None else check_available(m, available)
        if new_updates is not None and self._updates is not None:
            shaped("updates", new_updates, (m, self._updates.shape[1]))
        if round is not None:
            now = integer("round", round, least=0)
            last = self._last_selected[who]
            allowed = f"{now} or before; to report late news, leave round out"
            require_each("last selection", last, last <= now, allowed, ids=who)
        # From here on nothing can fail.
        if new_losses is not None:
            self._losses[who] = new_losses
        if new_updates is not None and m:
            if self._updates is None:
                self._updates = np.full((len(self), new_updates.shape[1]), np.nan, np.float32)
            self._updates[who] = new_updates
        if new_sizes is not None:
            self._sizes[who] = new_sizes
        if new_available is not None:
            self._available[who] = new_available
        if round is not None:
            self._times_selected[who] += last < now
            self._last_selected[who] = now

    def signals(self, round: int, *, available: ArrayLike | None = None) -> Signals:
        """What is known as round `round` begins; `available` overrides the remembered one for this round.

        Only the short arrays are copied: `updates` is the store's own memory, read-only, so use
        the value before the next `observe`.
        """
        return Signals(
            losses=self._losses.copy(),
            updates=self._updates,
            last_selected=self._last_selected.copy(),
            times_selected=self._times_selected.copy(),
            sizes=self._sizes.copy(),
            available=self._available.copy() if available is None else check_available(len(self), available),
            round=round,
        )

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """A copy of the whole memory as plain arrays: `np.savez(path, **state)`, or `.tolist()` each for JSON."""
        state: dict[str, NDArray[Any]] = {
            "losses": self._losses.copy(),
            "last_selected": self._last_selected.copy(),
            "times_selected": self._times_selected.copy(),
            "sizes": self._sizes.copy(),
            "available": self._available.copy(),
        }
        if self._updates is not None:
            state["updates"] = self._updates.copy()
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Take over what `state_dict` gave, from arrays or lists; refused whole if any part is wrong."""
        wanted = {"losses", "last_selected", "times_selected", "sizes", "available"}
        if not wanted <= set(state) <= wanted | {"updates"}:
            raise ValueError(f"state: keys {sorted(state)} are not allowed; allowed: {sorted(wanted)}, and updates")
        shaped("losses", np.asarray(state["losses"]), (len(self),))
        checked = Signals(**dict(state), round=np.iinfo(np.int64).max)  # type: ignore[arg-type]
        self._losses, self._last_selected = checked.losses.copy(), checked.last_selected.copy()
        self._times_selected, self._sizes = checked.times_selected.copy(), checked.sizes.copy()
        self._available = checked.available.copy()
        self._updates = None if checked.updates is None else np.array(checked.updates, np.float32)

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
