"""Reshuffle (Malinovsky et al. 2023): every client once in N / k rounds, in an order that is drawn anew each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equifl._numerics.checks import generator
from equifl.selectors.base import Rng, cohort_size
from equifl.selectors.planning import by_turns
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class Reshuffle:
    """Regularised participation: a random permutation of all clients, cut into cohorts of k that are played in order.

    After N / k rounds a new permutation is drawn. It keeps nothing: of the permutation, the clients that had no turn
    in this epoch are left, which are those with the fewest turns; k of them are drawn at random. Where k does not
    divide N, or changes, the last cohort of an epoch is filled from the next permutation, without the clients that it
    has already. A client that is offline when its turn comes is among the first when it is back; one that was away for
    long, or joins, counts as having had the fewest turns of those present (see `SignalStore`).

    It uses no signal: unknown clients are treated like the others. Equal participation is the half of `Rota` that it
    shares; `Balanced` is the other half.

    Use it where participation must be equal and nothing may be reported, or as the baseline of a method that rotates.

    References: Malinovsky et al. 2023, *Federated Learning with Regularized Client Participation*; with a fixed order,
    Cho et al. 2023, *On the Convergence of Federated Averaging with Cyclic Client Participation*.

    >>> signals = Signals(losses=[0.1, 0.9, 0.5, 0.3], times_selected=[1, 0, 1, 0])
    >>> sorted(Reshuffle().select(signals, 2, rng=0).tolist())
    [1, 3]
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        k = cohort_size(signals, k)
        return by_turns(signals, generator(rng))[:k]
