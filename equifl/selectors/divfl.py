"""DivFL (Balakrishnan et al. 2022): the cohort whose updates represent those of all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equifl._numerics.distances import GIBIBYTE
from equifl.objectives import FacilityLocation, Scale, SetFunction
from equifl.selectors.greedy_selection import MaximisesObjective, check_greedy
from equifl.signals import Signals


@dataclass(frozen=True, kw_only=True)
class DivFL(MaximisesObjective):
    """Maximises facility location G(S) (eq. 9 and 10): every client is close to a member of the cohort.

    Clients whose update is unknown come first, in random order. Unavailable clients are represented but not selected.

    Args:
        sample: r of stochastic greedy (eq. 17); None = every client, by lazy greedy.
        scale: "absolute" distances, or "relative" to their mean (which matters to `UnionFL(inner=...)`).
        memory_limit: bytes that the N x N matrix may take before rows are streamed instead.

    >>> signals = Signals(updates=[[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [5.0, 5.0]])
    >>> DivFL().select(signals, 2, rng=0).tolist()
    [0, 3]
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
