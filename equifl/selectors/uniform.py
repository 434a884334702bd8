"""Uniform: everybody has the same chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl.selectors.rules import cohort_size
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """k of the available clients at random, without replacement ("Random" in the paper).

    It needs no signal, so nobody is a stranger to it: clients never heard from have the same chance as all.

    >>> signals = Signals(losses=[0.1, 0.9, 0.5, 0.3], available=np.array([True, True, False, True]))
    >>> sorted(Uniform().select(signals, 3, rng=np.random.default_rng(0)).tolist())
    [0, 1, 3]
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """K distinct ids of available clients, in the order of choice."""
        k = cohort_size(signals, k)
        return rng.choice(np.flatnonzero(signals.available), k, replace=False)
