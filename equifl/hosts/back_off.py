"""Clients that do not answer: they are asked again after 1, 2, 4, ... rounds, until they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.hosts.journal import require_list

_LONGEST = 2**16  # rounds


class BackOff:
    """How often each client was silent in a row, and the round from which on it may be asked again.

    `name`: of its arrays in a checkpoint.

    >>> mute = BackOff()
    >>> for round in range(8):
    ...     if 7 in mute.awake([3, 7], round, least=1):
    ...         mute.count(round, answered=[3], silent=[7])
    ...         print(round)
    0
    1
    3
    7
    """

    def __init__(self, name: str = "back_off") -> None:
        self._names = [f"{name}.{column}" for column in ("clients", "silences", "until")]
        self._silences: dict[int, int] = {}
        self._until: dict[int, int] = {}

    def __contains__(self, client: int) -> bool:
        """Whether it was silent when it was last asked."""
        return client in self._silences

    def awake(self, clients: Iterable[int], round: int, *, least: int) -> list[int]:
        """Those of these clients that may be asked, in order; where there are too few, also who may be soonest."""
        given = list(clients)
        soonest = sorted(given, key=lambda client: max(self._until.get(client, 0), round))
        awake = {client for client in given if self._until.get(client, 0) <= round} | set(soonest[:least])
        return [client for client in given if client in awake]

    def count(self, round: int, *, answered: Iterable[int], silent: Iterable[int]) -> None:
        """Count who answered in a round, and who did not."""
        self.forget(answered)
        for client in silent:
            self._silences[client] = self._silences.get(client, 0) + 1
            self._until[client] = round + min(2 ** (self._silences[client] - 1), _LONGEST)

    def forget(self, clients: Iterable[int]) -> None:
        """These were not silent, or these ids belong to nobody."""
        for client in clients:
            self._silences.pop(client, None)
            self._until.pop(client, None)

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as plain arrays."""
        silences = [*self._silences.values()]
        columns = ([*self._silences], silences, [self._until[client] for client in self._silences])
        return {name: np.array(column, np.int64) for name, column in zip(self._names, columns, strict=True)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; earlier versions kept nothing of it."""
        if self._names[0] not in state:
            return
        for name in self._names:
            require_list(state, name, "i")
        clients, silences, until = (state[name].tolist() for name in self._names)
        if not len(clients) == len(silences) == len(until):
            raise ValueError(f"checkpoint: {', '.join(self._names)} are not of the same length")
        self._silences, self._until = dict(zip(clients, silences, strict=True)), dict(zip(clients, until, strict=True))
