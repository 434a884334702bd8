"""The signals of a live federation's clients: a store that grows as clients join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.selectors.base import needs
from equifl.signals import Ints, Signals
from equifl.sketch import CountSketch
from equifl.store import SignalStore

_PREFIX = "store."
_AFTER_ALL = np.iinfo(np.int64).max  # a round after every other


def asked_of_clients(selector: object) -> frozenset[str]:
    """Which of "losses" and "updates" clients must send for a selector; a sketch of the update also has its length.

    What else a selector may need (durations, label counts, the output bias) is not asked of clients of a host.

    >>> from equifl.selectors import OptimalSampling
    >>> asked_of_clients(OptimalSampling())
    frozenset({'updates'})
    """
    wanted = needs(selector)
    return (wanted | {"updates"} if "lengths" in wanted else wanted) & {"losses", "updates"}


class ClientSignals:
    """What clients reported, by client id. `guard`: limit what clients say of themselves (`equifl.guard`)."""

    def __init__(self, sketch: CountSketch, *, guard: bool) -> None:
        self._sketch, self._guard = sketch, guard
        self._store: SignalStore | None = None

    def grow(self, clients: int) -> None:
        """Make room for this many clients."""
        if self._store is not None:
            self._store.grow(clients)
        elif clients:
            self._store = SignalStore(clients, guard=self._guard, sketch=self._sketch)

    def at(self, round: int | None, here: Ints) -> Signals:
        """`Signals` at the start of a round (None: after all rounds), with these clients available."""
        assert self._store is not None, "no client was seen yet"
        available = np.zeros(len(self._store), bool)
        available[here] = True
        return self._store.signals(_AFTER_ALL if round is None else round, available=available)

    def times_selected(self) -> Ints:
        """How often each client was selected."""
        return np.zeros(0, np.int64) if self._store is None else self._store.times_selected

    def selected(self, who: Ints, round: int) -> None:
        """Store the selection of these clients."""
        assert self._store is not None, "no client was seen yet"
        self._store.observe(np.unique(who), round=round)

    def learn(self, name: str, who: Ints, values: NDArray[Any]) -> None:
        """Store the "losses", "sizes" or "updates" that these clients reported."""
        assert self._store is not None, "no client was seen yet"
        self._store.observe(who, **{name: values})  # type: ignore[arg-type]

    def forget(self, who: Iterable[int]) -> None:
        """Remove what is known of these clients."""
        if self._store is not None:
            self._store.forget(list(who))

    def state(self) -> dict[str, NDArray[Any]]:
        """The state as plain arrays, without the history of selections: that is in the records, and grows."""
        stored = {} if self._store is None else self._store.state_dict(history=False)
        return {f"{_PREFIX}{key}": array for key, array in stored.items()}

    def load(self, state: Mapping[str, NDArray[Any]], clients: int, cohorts: Sequence[Sequence[int]]) -> None:
        """Restore what `state` returned, for so many clients; `cohorts` are those of all rounds before."""
        self.grow(clients)
        if self._store is not None:
            mine = {key.removeprefix(_PREFIX): array for key, array in state.items() if key.startswith(_PREFIX)}
            self._store.load_state_dict(mine | {"history": _history(cohorts, mine.get("joined"))})


def _history(cohorts: Sequence[Sequence[int]], joined: NDArray[Any] | None) -> Ints:
    """Round and client of every selection; without those of somebody who had a client's id before it joined."""
    pairs = [(round, client) for round, cohort in enumerate(cohorts) for client in sorted(set(cohort))]
    history = np.array(pairs, np.int64).reshape(-1, 2)
    return history if joined is None else history[history[:, 0] >= joined[history[:, 1]]]
