"""The plain mean of the updates (line 13 of the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equifl.aggregators.base import Array, Replies, ones, weighted_mean


@dataclass(frozen=True)
class Mean:
    """step = 1/m * sum over the m replies of u_i.

    Line 13 of Algorithm 1 of Castillo, Kaya, Ye, Hashemi, "Submodular Maximization Approaches for Equitable Client
    Selection in Federated Learning". Use it where every client shall count the same. It needs nothing but the updates.

    >>> import numpy as np
    >>> replies = Replies(np.array([4, 7]), np.array([[1.0], [3.0]]), np.array([9.0, 1.0]), np.array([0.5, 2.0]))
    >>> Mean().step(replies, None)[0].tolist()
    [2.0]
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def step(self, replies: Replies, memory: None) -> tuple[Array, None]:
        return weighted_mean(replies.updates, ones(replies.updates)), None
