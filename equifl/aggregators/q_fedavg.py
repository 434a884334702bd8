"""q-FedAvg (Li et al. 2020): clients with higher losses count for more, and the step is shortened accordingly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import number
from equifl.aggregators.base import Array, Replies, filled, weighted_sum

_LEAST = 1e-10  # added to losses, as its authors do: F^(q-1) has no value at 0


@dataclass(frozen=True, kw_only=True)
class QFedAvg:
    """step = sum of Delta_i / sum of h_i, Delta_i = L F_i^q u_i, h_i = q F_i^(q-1) |L u_i|^2 + L F_i^q.

    F_i is the loss of client i at the model that it received. It minimises sum of F_i^(q+1) / (q+1), q-FFL (Li,
    Sanjabi, Beirami, Smith, "Fair Resource Allocation in Federated Learning", ICLR 2020); h_i bounds the curvature of
    that, so that one learning rate serves every q. With q = 0 it is the plain mean.

    Use it as the known baseline for fairness by weights. Steps become short where updates are long: with few local
    steps or a small learning rate it is near to `ByLoss`. It needs a loss a reply; an unknown one counts as the mean
    of the known.

    Args:
        q: how much more those who fare badly count, 0 or more.
        L: an estimate of the Lipschitz constant of the gradients; None = 1 / local learning rate, as its authors do.

    >>> replies = Replies(np.array([4, 7]), np.array([[1.0], [3.0]]), np.ones(2), np.array([0.5, 1.5]), lr=1.0)
    >>> QFedAvg(q=1.0).step(replies, None)[0].round(6).tolist()  # (0.5 * 1 + 1.5 * 3) / (1 + 0.5 + 9 + 1.5)
    [0.416667]
    """

    needs: ClassVar[tuple[str, ...]] = ("losses",)

    q: float = 1.0
    L: float | None = None

    def __post_init__(self) -> None:
        number("q", self.q, "0 or more", lambda q: 0 <= q < np.inf)
        if self.L is not None:
            number("L", self.L, "above 0", lambda L: 0 < L < np.inf)

    def step(self, replies: Replies, memory: None) -> tuple[Array, None]:
        if self.L is None and replies.lr is None:
            raise ValueError("L: missing; give QFedAvg(L=...), or Replies(lr=...), the local learning rate")
        L = self.L or 1 / (replies.lr or 1.0)
        u, F, q = replies.updates, filled(replies.losses) + _LEAST, self.q
        powers = (F / (F.max() if q >= 1 else F.min())) ** (q - 1)  # F^(q-1) in a unit in which it cannot overflow
        lengths = (u * u).sum(1)
        h = powers * (q * L**2 * lengths + L * F)
        return weighted_sum(u, powers * L * F / h.sum()), None
