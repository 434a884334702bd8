"""Label balance: a cohort whose pooled labels are as near to uniform as can be (Fed-CBS, FedEntOpt)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from equifl._numerics.checks import generator, integer, require
from equifl.selectors.base import Rng, check_call
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Floats, Ints, Signals

Measure = Literal["entropy", "quadratic"]
_MOST = 1e150  # examples of a class: larger counts are scaled, so that their sums are finite


@dataclass(frozen=True, kw_only=True)
class LabelBalance:
    """Adds, after a first client at random, the client that brings the cohort's pooled labels nearest to uniform.

    With q_c the share of class c among all examples of the cohort, either the entropy -sum q_c ln q_c is maximised
    (FedEntOpt), or sum (q_c - 1/C)^2 minimised (Fed-CBS's QCID). Both are greedy, as here; ties go to the client that
    was selected less often, then to chance. FedEntOpt keeps clients out for some rounds after their selection: that is
    `rest`. Fed-CBS also draws by bandit indices and measures QCID under encryption, which is not done here.

    Clients whose label counts are unknown come first, in random order. Label counts are private in many settings, and
    are not needed by `Balanced`, which balances updates.

    Use it where label counts may be reported and labels are what clients differ in. References: J. Zhang, A. Li,
    M. Tang, J. Sun, X. Chen, F. Zhang, C. Chen, Y. Chen, H. Li, *Fed-CBS*, ICML 2023; A. Lutz, G. Steidl, K. Müller,
    W. Samek, *FedEntOpt*, 2024.

    Args:
        measure: "entropy" or "quadratic".
        rest: rounds for which a client is left out after its selection, as far as others suffice; then those come
            first who have rested longest.

    >>> signals = Signals(label_counts=[[9, 0], [8, 0], [0, 9], [0, 2]])
    >>> sorted(LabelBalance().select(signals, 2, rng=1).tolist()) in ([0, 2], [1, 2], [1, 3], [0, 3])
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("label_counts",)

    measure: Measure = "entropy"
    rest: int = 0

    def __post_init__(self) -> None:
        options = get_args(Measure)
        require("measure", self.measure, self.measure in options, " or ".join(map(repr, options)))
        integer("rest", self.rest, least=0)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)

        def choose(candidates: Ints, places: int) -> Ints:
            assert signals.label_counts is not None or not len(candidates)
            if signals.label_counts is None:
                return candidates
            last = signals.last_selected[candidates]
            rested = (last < 0) | (last < signals.round - self.rest)
            order = draws.permutation(candidates)
            order = order[np.argsort(signals.times_selected[order], kind="stable")]
            groups = [order[np.isin(order, candidates[rested])]]
            groups += [order[np.isin(order, candidates[~rested & (last == t)])] for t in np.unique(last[~rested])]
            first = draws.permutation(next(filter(len, groups), order))[:1]
            counts = signals.label_counts / max(1.0, signals.label_counts[candidates].max(initial=0.0) / _MOST)
            chosen, pooled = np.zeros(0, np.int64), np.zeros(counts.shape[1])
            for group in groups:
                left = group
                while len(left) and len(chosen) < places:
                    if len(chosen) == 0 and len(first):
                        best = int(np.flatnonzero(left == first[0])[0])
                    else:
                        best = int(np.argmax(self.evenness(pooled + counts[left])))
                    chosen, pooled = np.append(chosen, left[best]), pooled + counts[left[best]]
                    left = np.delete(left, best)
            return chosen

        return unknown_first(
            signals, k, known=signals.knows("label_counts"), rng=draws, choose=choose, needs=self.needs
        )

    def evenness(self, counts: Floats) -> Floats:
        """(m,) how near to uniform each row of label counts is, more is nearer; rounded, so that ties are ties."""
        shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
        if self.measure == "quadratic":
            return -np.square(shares - 1 / counts.shape[-1]).sum(axis=-1).round(12)
        return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=-1).round(12)
