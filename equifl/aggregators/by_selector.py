"""The sum of the updates, weighted as the selector says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equifl.aggregators.base import Array, Replies, ones, weighted_mean, weighted_sum


@dataclass(frozen=True)
class BySelector:
    """step = 1/N sum of c_i u_i, where c_i says for how many of the N clients the reply of client i stands.

    c is what the selector's `weights` are: with DivFL gamma_i, the number of clients whose update client i is nearest
    to (Balakrishnan et al. 2022; eq. 8 of the paper); with sampling by unequal probabilities 1 / probability. Where
    some of the cohort do not reply, the others get their share. A selector without weights stands for the plain mean,
    and the log says so once.

    Use it where the selector's authors weight the replies; selectors that do not are left as they are.

    >>> import numpy as np
    >>> updates, weights = np.array([[1.0], [3.0]]), np.array([3.0, 1.0])
    >>> replies = Replies(np.array([4, 7]), updates, np.ones(2), np.ones(2), population=4, weights=weights)
    >>> BySelector().step(replies, None)[0].tolist()
    [1.5]
    """

    needs: ClassVar[tuple[str, ...]] = ("weights",)

    def step(self, replies: Replies, memory: None) -> tuple[Array, None]:
        if replies.weights is None:
            return weighted_mean(replies.updates, ones(replies.updates)), None
        return weighted_sum(replies.updates, replies.weights / replies.n), None
