"""Uniform: every available client has the same probability of selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator
from equifl.selectors.base import Rng, cohort_size
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """k of the available clients at random, without replacement ("Random" in the paper).

    It needs no signal, so unknown clients are treated like the others.

    >>> signals = Signals(losses=[0.1, 0.9, 0.5, 0.3], available=np.array([True, True, False, True]))
    >>> sorted(Uniform().select(signals, 3, rng=0).tolist())
    [0, 1, 3]
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        k = cohort_size(signals, k)
        return generator(rng).choice(np.flatnonzero(signals.available), k, replace=False)
