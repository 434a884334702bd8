"""The Aggregator protocol. Arrays are numpy's or PyTorch's; the results are of the same kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from equifl._numerics.checks import require
from equifl.signals import Floats, Ints

Array: TypeAlias = Any  # a numpy array or a PyTorch tensor


@dataclass(frozen=True)
class Replies:
    """What the cohort of one run sent back in a round, a row a client; at least one.

    Args:
        clients: (m,) their ids.
        updates: (m, d) w_k - w_k^(i), the model they received less the one they trained.
        sizes: (m,) their training examples.
        losses: (m,) at the model they received; nan where it is unknown, and for rules that do not need them.
        population: N, all clients there are, whose ids are below it; None = as many as the largest id says.
        weights: (m,) how many clients each stands for, as the selector says; None if it has no weights, or the rule
            does not need them.
        lr: the learning rate of their local training; None = unknown.
        free: how many of the ids below N belong to nobody, as in a live federation they may: N less these are there.
    """

    clients: Ints
    updates: Array
    sizes: Array
    losses: Array
    population: int | None = None
    weights: Array | None = None
    lr: float | None = None
    free: int = 0

    def __post_init__(self) -> None:
        require("clients", "none", len(self.clients) > 0, "at least one reply; without any the model stays as it is")
        rows = getattr(self.updates, "ndim", 0) == 2 and len(self.updates) == len(self.clients)
        require("updates", type(self.updates).__name__, rows, "an array with a row for each client")

    @property
    def n(self) -> int:
        """N: how many clients there are."""
        return int(self.clients.max()) + 1 if self.population is None else self.population


@runtime_checkable
class Aggregator(Protocol):
    """A server rule: w_(k+1) = w_k - lr * step. It has no state: its memory is passed in and returned.

    Any object with `needs` and `step` is one; `equifl.testing.AggregatorContract` tests it. Optional:
    `memory_bytes(clients, parameters)`, the size of its memory, so that a run too large is refused before it starts;
    `forget(memory, clients)`, the memory without these clients, whose numbers a live federation gives to others.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """What it looks at of "losses" and "weights": nobody computes or sends the rest. A class variable will do."""
        ...

    def step(self, replies: Replies, memory: Any) -> tuple[Array, Any]:
        """(d,) the step to subtract from the model, and the new memory; `memory` is None in the first round.

        A memory is None, a tuple of arrays or a dict of arrays, numpy's or PyTorch's: checkpoints keep it. The one
        passed in is given away: it may be changed in place and returned. The replies may not be changed.
        """
        ...


def weighted_mean(updates: Array, weights: Array) -> Array:
    """(d,) sum of weights_i * update_i / sum of weights; the plain mean where all weights are 0.

    >>> weighted_mean(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([3.0, 1.0])).tolist()
    [0.75, 0.25]
    """
    total = weights.sum()
    if isinstance(weights, np.ndarray):
        shares = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
        return shares.astype(updates.dtype) @ updates
    shares = (weights / total).where(total > 0, 1 / len(weights))  # a GPU is not waited for
    return shares.to(updates.dtype) @ updates


def weighted_sum(updates: Array, weights: Array) -> Array:
    """(d,) sum of weights_i * update_i, of the kind and type of the updates.

    >>> weighted_sum(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([3.0, 1.0])).tolist()
    [3.0, 1.0]
    """
    typed = weights.astype(updates.dtype) if isinstance(updates, np.ndarray) else weights.to(updates.dtype)
    return typed @ updates


def filled(losses: Array) -> Array:
    """(m,) the losses, with the mean of the known ones in place of those that are not known: nan, or infinite.

    >>> filled(np.array([5.0, 10.0, np.nan])).tolist(), filled(np.full(2, np.nan)).tolist()
    ([5.0, 10.0, 7.5], [0.0, 0.0])
    """
    known = losses < np.inf
    reported = where(known, losses, 0.0)
    unit = where(reported.max() > 0, reported.max(), 1.0)
    return where(known, losses, unit * ((reported / unit).sum() / known.sum().clip(1)))


def powers(losses: Array, q: float) -> Array:
    """(m,) f_i^q of the `filled` losses, divided by the largest, so that no q is too large; 1 if no loss is above 0.

    A loss below 0, which some losses of one's own can be, counts as 0.

    >>> powers(np.array([5.0, 10.0, np.nan]), 1.0).tolist(), powers(np.zeros(2), 3.0).tolist()
    ([0.5, 1.0, 0.75], [1.0, 1.0])
    """
    f = filled(losses).clip(0)
    largest = f.max()
    return where(largest > 0, (f / where(largest > 0, largest, 1.0)) ** q, 1.0)


def where(condition: Array, value: Array, other: Array | float) -> Array:
    """The value where the condition is true, else the other; a GPU is not waited for."""
    return value.where(condition, other) if hasattr(value, "where") else np.where(condition, value, other)


def ones(updates: Array) -> Array:
    """(m,) equal weights, of the kind and on the device of the updates, in float64."""
    return zeros(updates, len(updates)) + 1.0


def zeros(updates: Array, *shape: int) -> Array:
    """Zeros of this shape in float64, of the kind and on the device of the updates."""
    if isinstance(updates, np.ndarray):
        return np.zeros(shape)
    return updates[:1].double().new_zeros(shape)


def rule_bytes(rule: object, clients: int, parameters: int) -> int:
    """Bytes of memory that a rule takes for a run of so many clients and parameters; 0 if it does not say."""
    stated = getattr(rule, "memory_bytes", None)
    return int(stated(clients, parameters)) if callable(stated) else 0


def without(rule: object, memory: Any, clients: Ints) -> Any:
    """The memory of a rule without these clients; the same one if the rule keeps nothing of single clients."""
    forget = getattr(rule, "forget", None)
    return forget(memory, clients) if callable(forget) and memory is not None else memory


def replied_weights(weights: Floats, cohort: Ints, clients: Ints) -> Floats:
    """(len(clients),) the weights of those of a cohort who replied; they have the share of those who did not.

    >>> replied_weights(np.array([3.0, 1.0, 4.0]), np.array([7, 2, 5]), np.array([2, 7])).tolist()
    [2.0, 6.0]
    """
    place = {client: i for i, client in enumerate(cohort.tolist())}
    mine, total = weights[[place[client] for client in clients.tolist()]], weights.sum()
    return mine * (total / mine.sum()) if mine.sum() > 0 else np.full(len(mine), total / len(mine))
