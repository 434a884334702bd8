"""Active federated learning (Goetz et al. 2019): clients drawn by the value of their data, which is their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator, number
from equifl.selectors.base import Rng, check_call
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class ActiveFL:
    """Draws clients in proportion to exp(alpha2 v_i), with v_i = sqrt(n_i) loss_i, and a few uniformly.

    The share alpha1 of clients with the smallest v is excluded. (1 - alpha3) k clients, rounded down, but at least
    one, are drawn from the others, without replacement; the rest uniformly from all that are left. Excluded are never
    so many that places stay empty.

    Public codes disagree on alpha1 = 0.75: some keep 75 % of the clients. The paper excludes them ("the alpha1 K users
    with the smallest values"), and so does this. Clients whose loss is unknown come first, in random order.

    Use it where losses are known and stale, and clients with a high loss should be preferred softly. Reference:
    J. Goetz, K. Malik, D. Bui, S. Moon, H. Liu, A. Kumar, *Active Federated Learning*, 2019.

    Args:
        alpha1: share that is excluded, from 0 to 1.
        alpha2: how much the value counts, 0 or more.
        alpha3: share of the cohort that is drawn uniformly, from 0 to 1.

    >>> signals = Signals(losses=[0.1, 9.0, 0.5, 0.3])
    >>> ActiveFL(alpha1=0.5, alpha3=0.0).select(signals, 2, rng=0).tolist()
    [1, 2]
    """

    needs: ClassVar[tuple[str, ...]] = ("losses",)

    alpha1: float = 0.75
    alpha2: float = 0.01
    alpha3: float = 0.1

    def __post_init__(self) -> None:
        for name in ("alpha1", "alpha3"):
            number(name, getattr(self, name), "from 0 to 1", lambda share: 0 <= share <= 1)
        number("alpha2", self.alpha2, "0 or more", lambda alpha: 0 <= alpha < np.inf)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)

        def choose(candidates: Ints, places: int) -> Ints:
            v = np.sqrt(signals.sizes[candidates]) * signals.losses[candidates]
            by_value = max(int((1 - self.alpha3) * places + 1e-9), int(places > 0 and self.alpha3 < 1))
            excluded = min(int(self.alpha1 * len(candidates) + 1e-9), len(candidates) - by_value)
            order = draws.permutation(len(candidates))  # ties by chance
            kept = order[np.argsort(v[order], kind="stable")][excluded:]
            # The largest of alpha2 v plus Gumbel noise: successive draws in proportion to exp(alpha2 v).
            drawn = kept[np.argsort(-(self.alpha2 * v[kept] + draws.gumbel(size=len(kept))))[:by_value]]
            left = np.setdiff1d(np.arange(len(candidates)), drawn)
            return candidates[np.concatenate([drawn, draws.permutation(left)[: places - by_value]])]

        return unknown_first(signals, k, known=signals.knows_loss, rng=draws, choose=choose, needs=self.needs)
