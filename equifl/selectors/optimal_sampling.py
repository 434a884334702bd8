"""Optimal client sampling (Chen et al. 2022): probabilities in proportion to the length of the weighted update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.bounds import scaled_products
from equifl._numerics.checks import generator
from equifl.selectors.base import Rng, check_call
from equifl.selectors.sampling import inclusion_probabilities, pivotal
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Floats, Ints, Signals


@dataclass(frozen=True, kw_only=True)
class OptimalSampling:
    """Draws client i with probability p_i = min(1, c n_i |u_i|), c such that they sum to k; it weighs n_i / p_i.

    Among all unbiased estimates of the mean update by size, drawn independently with k clients expected, this has the
    least variance. The authors toss a coin for each client; here exactly k are drawn, with the same probabilities
    (pivotal sampling in random order). They use the lengths of fresh updates, `signal = "gradient"` in the simulator,
    where each client sends one number more; with stale ones it is a heuristic.

    The estimate is unbiased only if the server weighs replies by `weights` (1 / p). Clients whose length is unknown
    come first, in random order, and those who are drawn stand for all of them. A client whose update is 0 is drawn
    only if all others that count are.

    Use it where everybody can be asked for one number in each round. Reference: W. Chen, S. Horváth, P. Richtárik,
    *Optimal Client Sampling for Federated Learning*, TMLR 2022.

    >>> signals = Signals(lengths=[9.0, 1.0, 1.0, 1.0])
    >>> 0 in OptimalSampling().select(signals, 2, rng=0)
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("lengths",)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)

        def choose(candidates: Ints, places: int) -> Ints:
            candidates = draws.permutation(candidates)
            return candidates[pivotal(_chances(signals, candidates, places), draws)]

        return unknown_first(signals, k, known=signals.knows("lengths"), rng=draws, choose=choose, needs=self.needs)

    def weights(self, signals: Signals, cohort: Ints) -> Floats:
        """N n_i / p_i over the sum of sizes; they sum to N on average alone.

        Where some unknown clients were drawn, p is the same for all of them. Known ones who had no chance, because
        unknown ones took all places, are not stood for.
        """
        known, members, there = signals.knows("lengths"), np.asarray(cohort), signals.available.copy()
        there[members] = True
        chance, stood_for = np.zeros(signals.n), np.zeros(signals.n, bool)
        for group, alike in ((there & known, False), (there & ~known, True)):
            drawn, candidates = int(group[members].sum()), np.flatnonzero(group)
            if drawn:
                chance[group] = drawn / len(candidates) if alike else _chances(signals, candidates, drawn)
                stood_for |= group
        total = signals.sizes[stood_for].sum()
        return signals.n * signals.sizes[members] / total / np.maximum(chance[members], 1e-12)


def _chances(signals: Signals, candidates: Ints, k: int) -> Floats:
    assert signals.norms is not None or not len(candidates)
    lengths = np.zeros(0) if signals.norms is None else signals.norms[candidates]
    return inclusion_probabilities(scaled_products(signals.sizes[candidates], lengths), k)
