"""FedAvg (McMahan et al. 2017): the mean of the updates, weighted by the clients' numbers of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equifl.aggregators.base import Array, Replies, weighted_mean


@dataclass(frozen=True)
class BySize:
    """step = sum of n_i u_i / sum of n_i, n_i the training examples of client i.

    FedAvg (McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017). Use it where every example shall count the same, and not every client. It needs
    the clients' sizes, which they report once.

    >>> import numpy as np
    >>> replies = Replies(np.array([4, 7]), np.array([[1.0], [3.0]]), np.array([3.0, 1.0]), np.array([0.5, 2.0]))
    >>> BySize().step(replies, None)[0].tolist()
    [1.5]
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def step(self, replies: Replies, memory: None) -> tuple[Array, None]:
        return weighted_mean(replies.updates, replies.sizes), None
