"""Clustered sampling (Fraboni et al. 2021): clients with similar updates share an urn, and one is drawn from each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator
from equifl._numerics.similarities import angles
from equifl._numerics.ward import ward
from equifl.selectors.base import Rng, check_call
from equifl.selectors.sampling import inclusion_probabilities, pivotal
from equifl.selectors.unknown_clients import unknown_first, warn_without
from equifl.signals import Floats, Ints, Signals


@dataclass(frozen=True, kw_only=True)
class ClusteredSampling:
    """Draws one client from each of k urns of similar clients; on average everybody in proportion to its size.

    1. Ward's tree of the angles arccos(<u_i, u_j> / |u_i| |u_j|) between the last updates.
    2. Its largest subtrees with at most a share 1/k of all examples are clusters.
    3. The k largest clusters are urns. The clients of the others are poured into them, from the smallest cluster on,
       until each urn holds a share of exactly 1/k; a client may lie in two urns.
    4. One client is drawn from each urn, in proportion to its size there. `weights` make the mean of all unbiased.

    This is Algorithm 2. It draws with replacement, and counts a client twice that two urns draw. Here a cohort has k
    different clients: a client with a share of 1/k or more is certain and weighs by its size, and one that lies in two
    urns is drawn from one of them at most (ordered pivotal sampling), with the same probability as theirs; where it
    spans three, two clients of the middle one may be drawn. The authors' code gives the matrix of angles to Ward as if
    its rows were coordinates; here they are the distances, as in the paper. An update of 0 has a right angle to all
    others.

    Clients whose update is unknown come first, in random order. Distances without `lengths` do not say what the angles
    are: then those of updates less their mean are taken, with a warning. Quadratic in N, time and memory:
    10,000 clients took 1.6 s and 404 MiB on two cores (docs/performance.md).

    Use it where clients form groups and the estimate must stay unbiased. Reference: Fraboni, Vidal, Kameni, Lorenzi
    2021, *Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated Learning*.

    >>> updates = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> chosen = ClusteredSampling().select(Signals(updates=updates), 2, rng=0)
    >>> sorted((chosen // 2).tolist())
    [0, 1]
    """

    needs: ClassVar[tuple[str, ...]] = ("updates", "lengths")

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)
        if signals.distances is not None:
            warn_without(signals, "lengths", "it took the angles between updates less their mean")

        def choose(candidates: Ints, places: int) -> Ints:
            expected = inclusion_probabilities(signals.sizes[candidates], places)
            sure, others = candidates[expected >= 1], candidates[expected < 1]
            expected = expected[expected < 1]
            if len(others) == 0 or places == len(sure):
                return sure[:places]
            clusters = ward(angles(signals, others)).clusters_up_to(1.0, expected)
            line = _urns(clusters, expected, places - len(sure), draws)
            return np.concatenate([sure, others[line[pivotal(expected[line], draws)]]])

        return unknown_first(signals, k, known=signals.knows_update, rng=draws, choose=choose, needs=("updates",))

    def weights(self, signals: Signals, cohort: Ints) -> Floats:
        """Size / probability of selection, all together N: equal, but for clients that are certain."""
        known = signals.knows_update
        candidates = np.flatnonzero(signals.available & known)
        chance = np.ones(signals.n)
        chance[candidates] = inclusion_probabilities(signals.sizes[candidates], int(known[cohort].sum()))
        shares = signals.sizes[cohort] / chance[cohort]
        return shares * (signals.n / shares.sum())


def _urns(clusters: Ints, expected: Floats, urns: int, rng: np.random.Generator) -> Ints:
    """All positions in the order in which urns hold them, urn after urn; one in two urns stands between them."""
    order = rng.permutation(len(clusters))
    _, label = np.unique(clusters, return_inverse=True)
    mass = np.bincount(label, weights=expected)
    by_mass = np.argsort(mass, kind="stable")
    poured, kept = by_mass[:-urns], by_mass[-urns:]
    rank = np.empty(len(mass), np.int64)
    rank[by_mass] = np.arange(len(mass))
    order = order[np.argsort(rank[label[order]], kind="stable")]
    rest = iter(order[rank[label[order]] < len(poured)].tolist())
    line, over, client = [], 0.0, next(rest, None)
    for urn in kept.tolist():
        full = over + mass[urn]
        line += order[label[order] == urn].tolist()
        while client is not None and full < 1 - 1e-9:
            line.append(client)
            full += expected[client]
            client = next(rest, None)
        over = max(0.0, full - 1)
    line += [client] if client is not None else []  # rounding
    return np.array([*line, *rest], np.int64)
