"""The mean of the updates, weighted by a power of the clients' losses: a higher loss counts for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import number
from equifl.aggregators.base import Array, Replies, powers, weighted_mean


@dataclass(frozen=True)
class ByLoss:
    """step = sum of f_i^q u_i / sum of f_i^q, f_i the loss at the model that client i received; q = 0 is the mean.

    The weights of q-FFL (Li et al. 2020) without its shortening of the step, which is `QFedAvg`. Use it where those
    who fare badly shall count for more within a cohort. It needs a loss a reply; an unknown one counts as the mean
    of the known.

    Args:
        q: how much more those who fare badly count, 0 or more.

    >>> replies = Replies(np.array([4, 7]), np.array([[1.0], [3.0]]), np.array([3.0, 1.0]), np.array([0.5, 1.5]))
    >>> ByLoss(q=1.0).step(replies, None)[0].tolist()
    [2.5]
    """

    needs: ClassVar[tuple[str, ...]] = ("losses",)

    q: float = 1.0

    def __post_init__(self) -> None:
        number("q", self.q, "0 or more", lambda q: 0 <= q < np.inf)

    def step(self, replies: Replies, memory: None) -> tuple[Array, None]:
        return weighted_mean(replies.updates, powers(replies.losses, self.q)), None
