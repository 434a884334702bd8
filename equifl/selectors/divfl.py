"""DivFL (Balakrishnan et al. 2022): the cohort whose updates represent those of all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.distances import GIBIBYTE, Distances
from equifl.objectives import FacilityLocation, Scale, SetFunction
from equifl.selectors.greedy_selection import MaximisesObjective, check_greedy
from equifl.signals import Floats, Ints, Signals

_ROWS = 16  # of distances held at a time


@dataclass(frozen=True, kw_only=True)
class DivFL(MaximisesObjective):
    """Maximises facility location G(S) (eq. 9 and 10): every client is close to a member of the cohort.

    Clients whose update is unknown come first, in random order. Unavailable clients are represented but not selected.
    Quadratic in N, in time and up to `memory_limit` in memory; linear with `sample`.

    Args:
        sample: r of stochastic greedy (eq. 17); None = every client, by lazy greedy.
        scale: "absolute" distances, or "relative" to their mean (which matters to `UnionFL(inner=...)`).
        memory_limit: bytes that the N x N matrix may take before rows are streamed instead.

    >>> signals = Signals(updates=[[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [5.0, 5.0]])
    >>> DivFL().select(signals, 2, rng=0).tolist()
    [0, 3]
    >>> DivFL().weights(signals, np.array([0, 3])).tolist()
    [3.0, 1.0]
    """

    needs: ClassVar[tuple[str, ...]] = ("updates",)

    sample: int | None = None
    scale: Scale = "absolute"
    memory_limit: int = GIBIBYTE

    def __post_init__(self) -> None:
        check_greedy(sample=self.sample, scale=self.scale, memory_limit=self.memory_limit)

    def objective(self, signals: Signals) -> SetFunction:
        """G: how well a cohort represents all clients."""
        return FacilityLocation(signals, scale=self.scale, memory_limit=self.memory_limit)

    def weights(self, signals: Signals, cohort: Ints) -> Floats:
        """gamma_j (eq. 8): how many clients have an update nearer to that of member j than to the others'.

        A member represents itself, also if its update is unknown; ties go to the member chosen first. Unknown clients
        that were not selected are represented in proportion, so that all sum to N.
        """
        known, cohort = signals.knows_update, np.asarray(cohort)
        position = np.cumsum(known) - 1  # of a client among the known ones
        members = np.flatnonzero(known[cohort])
        counts = np.ones(len(cohort))
        if len(members):
            distances = Distances(signals, self.memory_limit)
            nearest, owner = np.full(len(distances), np.inf), np.zeros(len(distances), np.int64)
            for start in range(0, len(members), _ROWS):
                some = members[start : start + _ROWS]
                rows = distances.rows(position[cohort[some]])
                first = rows.argmin(axis=0)
                least = rows[first, np.arange(len(distances))]
                owner = np.where(least < nearest, some[first], owner)
                nearest = np.minimum(nearest, least)
            owner[position[cohort[members]]] = members
            counts[members] = np.bincount(owner, minlength=len(cohort))[members]
        return counts * (signals.n / counts.sum())
