"""Who is present and who was selected, counted round by round: figures of participation need not look back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equifl.metrics import participation
from equifl.signals import Ints

Counted = Literal["all", "present"]  # whose participation the figures are about
_WAITED, _LONGEST, _PRESENT = _NAMES = "attendance.waited", "attendance.longest", "attendance.present"


class Attendance:
    """How long clients wait to be selected, and which of them are present, by client id.

    The figures count "all" clients that were ever met, from the first round on; or those "present" in the last round,
    whose waits are then rounds in which they were present.
    """

    def __init__(self, counted: Counted = "all") -> None:
        self.counted = counted
        self._rounds = 0
        self._waited, self._longest = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._present = np.zeros(0, bool)

    def count(self, cohort: Iterable[int], present: Ints, clients: int) -> dict[str, list[int]]:
        """Count a round of so many clients; returns who is present now and was not before, and the reverse."""
        self._grow(clients)
        here, who = np.zeros(clients, bool), np.array(sorted(set(cohort)), np.int64)
        here[present] = True
        self._rounds += 1
        self._waited += here if self.counted == "present" else 1
        self._waited[who] = 0
        np.maximum(self._longest, self._waited, out=self._longest)
        joined, left = np.flatnonzero(here & ~self._present), np.flatnonzero(self._present & ~here)
        self._present = here
        return {"joined": joined.tolist(), "left": left.tolist()}

    def figures(self, times_selected: Ints, named: Ints) -> tuple[dict[str, float], int]:
        """The participation of the clients that count, of those `named`, and how many they are."""
        self._grow(len(times_selected))
        who = named[self._present[named]] if self.counted == "present" else named
        longest = int(self._longest[who].max(initial=0))
        return participation(times_selected[who] if len(who) else [0], []) | {"longest_wait": float(longest)}, len(who)

    def forget(self, who: Iterable[int]) -> None:
        """These ids belong to nobody from now on."""
        for client in who:
            if client < len(self._waited):
                self._waited[client] = self._longest[client] = self._since_start
                self._present[client] = False

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as plain arrays."""
        return {_WAITED: self._waited, _LONGEST: self._longest, _PRESENT: self._present}

    def load(self, state: Mapping[str, NDArray[Any]], clients: int, rounds: int) -> None:
        """Restore what `state` returned, for so many clients, after so many rounds; ValueError if that cannot be."""
        self._rounds = rounds
        for name, kind in zip(_NAMES, "iib", strict=True):
            if name not in state or state[name].dtype.kind != kind or state[name].shape != (clients,):
                raise ValueError(f"checkpoint: `{name}` is missing, or no list of {clients}")
        self._waited, self._longest, self._present = (state[name].copy() for name in _NAMES)

    @property
    def _since_start(self) -> int:
        """How long a client has waited that joins now."""
        return self._rounds if self.counted == "all" else 0

    def _grow(self, clients: int) -> None:
        more = clients - len(self._waited)
        if more > 0:
            new = np.full(more, self._since_start)
            self._waited, self._longest = np.append(self._waited, new), np.append(self._longest, new)
            self._present = np.append(self._present, np.zeros(more, bool))
