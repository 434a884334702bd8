"""FedAvgM (Hsu et al. 2019): the server's steps with momentum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from equifl._numerics.checks import number, require
from equifl.aggregators.base import Aggregator, Array, Replies, rule_bytes, without
from equifl.aggregators.mean import Mean
from equifl.signals import Ints

_INNER = "inner_"


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """m = beta m + s, step = m, where s is the step of the inner rule; m is 0 before the first round.

    With the mean inside it is FedAvgM (Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification", 2019). Steps add up to 1 / (1 - beta) of their length: lower `server.lr` to
    compare it with other rules.

    Use it where cohorts differ from round to round and training is slow: it averages over the last 1 / (1 - beta)
    cohorts. It needs what the inner rule needs, and d numbers on the server.

    Args:
        beta: how much of the last step goes on, from 0 to below 1.
        inner: the rule whose steps are added up.

    >>> import numpy as np
    >>> replies = Replies(np.array([4, 7]), np.array([[1.0], [3.0]]), np.ones(2), np.ones(2))
    >>> step, memory = Momentum(beta=0.5).step(replies, None)
    >>> step.tolist(), Momentum(beta=0.5).step(replies, memory)[0].tolist()
    ([2.0], [3.0])
    """

    beta: float = 0.9
    inner: Aggregator = field(default_factory=Mean)

    def __post_init__(self) -> None:
        number("beta", self.beta, "from 0 to below 1", lambda beta: 0 <= beta < 1)
        require("inner", self.inner, isinstance(self.inner, Aggregator), "a server rule, with needs and step")
        in_file = getattr(self.inner, "keep", None) == "file"
        require("inner", self.inner, not in_file, "a rule that keeps its memory in memory, not in a file")

    @property
    def needs(self) -> tuple[str, ...]:
        """What the inner rule needs."""
        return self.inner.needs

    def step(self, replies: Replies, memory: dict[str, Any] | None) -> tuple[Array, dict[str, Any]]:
        s, inner = self.inner.step(replies, _unpacked(memory))
        m = s if memory is None else self.beta * memory["momentum"] + s
        return m, {"momentum": 1.0 * m} | _packed(inner)  # the step is the caller's, who may change it

    def memory_bytes(self, clients: int, parameters: int) -> int:
        """Of one run."""
        return 4 * parameters + rule_bytes(self.inner, clients, parameters)

    def forget(self, memory: dict[str, Any], clients: Ints) -> dict[str, Any]:
        """The memory without what the inner rule knows of these clients."""
        return memory | _packed(without(self.inner, _unpacked(memory), clients))


def _packed(memory: Any) -> dict[str, Any]:
    """The memory of the inner rule as parts of ours."""
    parts = dict(enumerate(memory)) if isinstance(memory, tuple) else memory or {}
    return {f"{_INNER}{name}": part for name, part in parts.items()}


def _unpacked(memory: dict[str, Any] | None) -> Any:
    """The memory that the inner rule returned; an empty one and None are the same to it."""
    named = {name.removeprefix(_INNER): part for name, part in (memory or {}).items() if name.startswith(_INNER)}
    if named and all(map(str.isdecimal, named)):
        return tuple(named[str(i)] for i in range(len(named)))
    return named or None
