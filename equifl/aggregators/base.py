"""The Aggregator protocol. Arrays are numpy's or PyTorch's; the results are of the same kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from equifl.signals import Ints

Array: TypeAlias = Any  # a numpy array or a PyTorch tensor


@dataclass(frozen=True)
class Replies:
    """What the cohort of one run sent back in a round, a row a client; at least one.

    Args:
        clients: (m,) their ids.
        updates: (m, d) w_k - w_k^(i), the model they received less the one they trained.
        sizes: (m,) their training examples.
        losses: (m,) at the model they received; nan for rules that do not need them.
    """

    clients: Ints
    updates: Array
    sizes: Array
    losses: Array


@runtime_checkable
class Aggregator(Protocol):
    """A server rule: w_(k+1) = w_k - lr * step. It has no state: its memory is passed in and returned.

    Attributes:
        needs: "losses", if it looks at them: nobody computes or sends them otherwise.
    """

    needs: ClassVar[tuple[str, ...]]

    def step(self, replies: Replies, memory: Any) -> tuple[Array, Any]:
        """(d,) the step to subtract from the model, and the new memory; `memory` is None in the first round.

        A memory is None, a tuple of arrays or a dict of arrays, numpy's or PyTorch's: checkpoints keep it.
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


def ones(updates: Array) -> Array:
    """(m,) equal weights, of the kind and on the device of the updates, in float64."""
    if isinstance(updates, np.ndarray):
        return np.ones(len(updates))
    return updates.new_ones(len(updates)).double()
