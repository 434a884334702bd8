"""FedGS (Wang et al. 2023): a cohort that is spread over the graph of similar clients, with balanced counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator, number
from equifl._numerics.similarities import cosines
from equifl.selectors.base import Rng, check_call
from equifl.selectors.unknown_clients import unknown_first, warn_without
from equifl.signals import Floats, Ints, Signals

_PASSES = 100  # over the cohort, in search of swaps: a handful suffice


@dataclass(frozen=True, kw_only=True)
class FedGS:
    """Maximises alpha 2/(k(k-1)) sum over pairs of D_ij - 1/(N-1) sum over members of (2 (v_i - mean v - k/N) + 1).

    D_ij is the length of the shortest path between i and j in the graph of clients. Those whose updates have a cosine
    similarity s above `threshold` are joined by an edge of length exp(-s^2 / `spread`): clients of one kind are near.
    The second term is the variance of the counts v after the round. So a cohort is dispersed, and counts stay equal.

    The authors solve it as an integer programme. Here it is maximised by greedy and then by swaps, until none helps:
    a local maximum. Pairs without a path count as the longest path that there is (1 if there is none). They build the
    graph once from label distributions or updates; here it is that of the last updates, in every round. Their code
    first scales similarities to 0 to 1, and then divides paths by the longest; here both are taken as
    they are.

    Clients whose update is unknown come first, in random order. Distances without `lengths` do not say what the
    similarities are: then those of updates less their mean are taken, with a warning. The shortest paths are cubic in
    the number of clients: 1,000 take about a second, 10,000 are too many.

    Use it where clients are online by arbitrary patterns and counts must stay equal. Reference: Z. Wang, X. Fan, J.
    Qi, H. Jin, P. Yang, S. Shen, C. Wang, *FedGS: Federated Graph-based Sampling with Arbitrary Client Availability*,
    AAAI 2023.

    Args:
        alpha: weight of the dispersion, 0 or more.
        threshold: cosine similarity above which clients are joined, from 0 to 1.
        spread: what the squared similarity is divided by, above 0.

    >>> updates = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> sorted((FedGS().select(Signals(updates=updates), 2, rng=0) // 2).tolist())
    [0, 1]
    """

    needs: ClassVar[tuple[str, ...]] = ("updates", "lengths")

    alpha: float = 0.1
    threshold: float = 0.01
    spread: float = 0.1

    def __post_init__(self) -> None:
        number("alpha", self.alpha, "0 or more", lambda alpha: 0 <= alpha < np.inf)
        number("threshold", self.threshold, "from 0 to 1", lambda threshold: 0 <= threshold <= 1)
        number("spread", self.spread, "above 0", lambda spread: 0 < spread < np.inf)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        if signals.distances is not None:
            warn_without(signals, "lengths", "it took the similarities of updates less their mean")

        def choose(candidates: Ints, places: int) -> Ints:
            if places in (0, len(candidates)):
                return candidates[:places]
            known = np.flatnonzero(signals.knows_update)  # the graph is that of all, offline or not
            at = np.searchsorted(known, candidates)
            paths = self.paths(signals, known)[np.ix_(at, at)]
            v = signals.times_selected
            counts = (2 * (v[candidates] - v.mean() - places / signals.n) + 1) / max(1, signals.n - 1)
            pairs = self.alpha * 2 / (places * (places - 1)) if places > 1 else 0.0
            return candidates[_maximised(pairs * paths, -counts, places)]

        return unknown_first(
            signals, k, known=signals.knows_update, rng=generator(rng), choose=choose, needs=("updates",)
        )

    def paths(self, signals: Signals, ids: Ints) -> Floats:
        """(m, m) the shortest paths between these clients, by Floyd and Warshall."""
        similar = cosines(signals, ids).astype(np.float64)
        found = np.where(similar > self.threshold, np.exp(-np.square(similar) / self.spread), np.inf)
        np.fill_diagonal(found, 0.0)
        for via in range(len(ids)):
            np.minimum(found, found[:, via, None] + found[via], out=found)
        reached = np.isfinite(found)
        return np.where(reached, found, found[reached].max() or 1.0)


def _maximised(pairs: Floats, own: Floats, places: int) -> Ints:
    """Positions S of so many elements that maximise sum over S of `own` plus sum over pairs in S of `pairs`."""
    value = own.astype(np.float64)  # of adding an element to those chosen
    chosen = [int(np.argmax(value + (places - 1) * pairs.mean(axis=1)))]  # as if the others were drawn at random
    for _ in range(places - 1):
        value = value + pairs[chosen[-1]]
        free = value.copy()
        free[chosen] = -np.inf
        chosen.append(int(np.argmax(free)))
    value = value + pairs[chosen[-1]]
    members, enough = np.array(chosen), 1e-12 * (np.abs(own).max() + np.abs(pairs).max())
    for _ in range(_PASSES):
        improved = False
        for place in range(places):
            leaves = members[place]
            gain = value - pairs[leaves] - value[leaves]  # of each element in its place
            gain[members] = -np.inf
            enters = int(np.argmax(gain))
            if gain[enters] > enough:
                members[place] = enters
                value = value - pairs[leaves] + pairs[enters]
                improved = True
        if not improved:
            break
    return members
