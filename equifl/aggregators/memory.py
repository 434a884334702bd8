"""FedVARP (Jhunjhunwala et al. 2022): the server remembers each client's last update, and corrects for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from equifl._numerics.checks import known, number, require
from equifl.aggregators.base import Array, Replies, powers, weighted_sum, where, zeros
from equifl.aggregators.last_updates import KEEP, LastUpdates, empty, grown
from equifl.signals import Ints

_LEAST = 1e-12  # a loss counts as no less than this: 0 for everybody is equal shares


@dataclass(frozen=True, kw_only=True)
class Memory:
    """step = N/|S| sum over S of p_i (u_i - y_i) + sum over all i of p_i y_i, and then y_i = u_i for S.

    y_i is the last update of client i, 0 before its first; S are those who replied, N all clients. p_i = f_i^q / sum
    of f^q, f_i the last known loss of i at a model that it received, the mean of the known where it is unknown. With
    q = 0 this is FedVARP (Jhunjhunwala, Sharma, Nagarkatti, Joshi, "FedVARP: Tackling the Variance Due to Partial
    Client Participation in Federated Learning", UAI 2022), p_i = 1/N: the mean of S with the memory as a control
    variate. The loss weights are ours.

    Use it where few of the clients take part in a round and come back: selection then matters less, since everybody's
    last update counts in every step. It needs no further communication (with q > 0 a loss a reply) and N x d numbers
    on the server, of which each step reads all once.

    Args:
        q: how much more those who fare badly count, 0 or more; 0 = all the same.
        keep: "whole" updates in memory; as "float16", scaled by client, with three digits; or in a memory-mapped
            "file", of two rows of float32 a client, in the run folder.

    >>> first = Replies(np.array([0]), np.array([[4.0]]), np.ones(1), np.full(1, np.nan), population=2)
    >>> second = Replies(np.array([1]), np.array([[1.0]]), np.ones(1), np.full(1, np.nan), population=2)
    >>> step, memory = Memory().step(first, None)
    >>> step.tolist(), Memory().step(second, memory)[0].tolist()  # 1 - 0 + (4 + 0) / 2
    ([4.0], [3.0])
    """

    q: float = 0.0
    keep: str = "whole"

    def __post_init__(self) -> None:
        number("q", self.q, "0 or more", lambda q: 0 <= q < np.inf)
        known("keep", [self.keep], KEEP)

    @property
    def needs(self) -> tuple[str, ...]:
        """Losses, if they are weights."""
        return ("losses",) if self.q else ()

    def step(self, replies: Replies, memory: dict[str, Any] | None) -> tuple[Array, dict[str, Any]]:
        S, u, n = replies.clients, replies.updates, replies.n
        allowed = f"ids below {n}, or Replies(population=...) with the most clients that there will be"
        require("clients", int(S.max()), S.max() < n, allowed)
        require("clients", int(S.min()), S.min() >= 0, "ids from 0 on")
        memory = self.start(n, u) if memory is None else grown(memory, n)
        p, y = self._shares(replies, memory), LastUpdates(memory, u)
        step = (n - replies.free) / len(S) * weighted_sum(u - y[S], p[S]) + y.weighted_sum(p)
        y[S] = u
        return step, memory

    def start(self, clients: int, updates: Array, rows: Any = None) -> dict[str, Any]:
        """The memory before the first round; `rows` as of `last_updates.map_rows`, for a file with a name."""
        losses = {"losses": zeros(updates, clients), "known": zeros(updates, clients)} if self.q else {}
        return empty(self.keep, clients, updates, rows) | losses

    def forget(self, memory: dict[str, Any], clients: Ints) -> dict[str, Any]:
        """The memory as if these clients had never replied."""
        clients = clients[clients < len(LastUpdates(memory, None))]
        LastUpdates(memory, None).clear(clients)
        for name in ("losses", "known") if self.q else ():
            memory[name][clients] = 0.0
        return memory

    def memory_bytes(self, clients: int, parameters: int) -> int:
        """Of one run of a model in float32, in this machine's memory or the GPU's; a file takes none."""
        each = {"whole": 4 * parameters, "float16": 2 * parameters + 4, "file": 24}[self.keep]
        return clients * (each + (16 if self.q else 0))

    def file_bytes(self, clients: int, parameters: int) -> int:
        """Of one run, on the disk."""
        return 2 * 4 * clients * parameters if self.keep == "file" else 0

    def _shares(self, replies: Replies, memory: dict[str, Any]) -> Array:
        """(N,) p, with the losses of these replies; of a free id, whose y is 0, it is any number."""
        if not self.q:
            return zeros(replies.updates, replies.n) + 1 / (replies.n - replies.free)
        losses, known, S = memory["losses"], memory["known"], replies.clients
        unknown = ~(replies.losses < np.inf)
        losses[S], known[S] = where(unknown, losses[S], replies.losses), where(unknown, known[S], 1.0)
        p = powers(where(known > 0, losses, np.nan) + _LEAST, self.q)
        of_free = p[known == 0][: replies.free].sum() if replies.free else 0.0  # a GPU is not waited for
        return p / (p.sum() - of_free)
