"""Rota: all clients are selected equally often, in cohorts whose mean update is close to the population's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from equifl._numerics.bounds import Bounds
from equifl._numerics.checks import generator
from equifl._numerics.distances import centred_products
from equifl.selectors.base import Rng, cohort_size
from equifl.selectors.unknown_clients import asked_again, must_wait, warn_if_uninformed
from equifl.signals import Floats, Ints, Signals

_GROUPS = 32  # in one plan: more hardly improve the balance of the selected group
_CLIENTS = 2048  # in one plan: their Gram matrix takes 32 MiB
_OVERDUE = 1.5  # times the median wait of the pool
_PASSES = 100  # over the clients, in search of swaps: a handful suffice, but rounding could make it cycle
_PLACES = 128  # in one plan: 2,048 clients make 16 such groups; with fewer groups each would be less balanced

Each: TypeAlias = Callable[..., Iterable[Any]]  # `map`, or an equivalent that runs elsewhere


@dataclass(frozen=True, kw_only=True)
class Rota:
    """Selects among the clients with the fewest turns a group whose mean update is close to the population's.

    1. The pool is the available clients with the fewest turns. Turns are selections, plus missed turns for clients
       that were unavailable or joined late (see `SignalStore`). If the pool has fewer than k clients, all of them are
       selected and the pool becomes the clients with the next count.
    2. The pool is split into groups of k that minimise sum over groups of |sum over members of (u_i - u_mean)|^2,
       by swaps from a random start (anticlustering), in at most 100 passes over the clients.
    3. One of the groups is selected, at random. The next round makes a new plan for the remaining pool.

    Unknown clients come first among those with equally many turns, in random order, unless they must wait: because
    they were selected and never replied, or because too many joined at once.
    An update implausibly longer than the others is shortened (`equifl.outliers`), so that these stay balanced.
    A plan covers a random part of a large pool: 32 groups, at most 2,048 clients. A large cohort from such a pool is
    made of several plans, each of at most 128 places.

    >>> signals = Signals(updates=[[-2.0], [2.0], [-1.0], [1.0]])
    >>> sorted(Rota().select(signals, 2, rng=0).tolist()) in ([0, 1], [2, 3])
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("updates",)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        return self.select_around(None, signals, k, rng=rng)

    def select_around(
        self, around: tuple[Bounds, Floats] | None, signals: Signals, k: int, *, rng: Rng, each: Each = map
    ) -> Ints:
        """As `select`, given bounds of updates and their mean (None = find them); `each` may run plans elsewhere."""
        k, rng = cohort_size(signals, k), generator(rng)
        known = signals.knows_update
        warn_if_uninformed(signals, known)
        if k == 0:
            return np.zeros(0, np.int64)
        turns = signals.turns
        queue = rng.permutation(np.flatnonzero(signals.available))
        queue = queue[np.lexsort((known[queue], turns[queue]))]  # fewest turns, then unknown clients, then chance
        waits = must_wait(signals, queue, k, known)
        waiting, queue = queue[waits], queue[~waits]
        if len(queue) <= k:
            soonest = np.argsort(asked_again(signals, waiting), kind="stable")
            return np.concatenate([queue, waiting[soonest][: k - len(queue)]])
        count = turns[queue[k - 1]]
        sure = queue[:k][(turns[queue[:k]] < count) | ~known[queue[:k]]]
        pool = queue[(turns[queue] == count) & known[queue]]
        places = k - len(sure)
        if places in (0, len(pool)):
            return np.concatenate([sure, pool[:places]])
        sure, pool = _with_overdue(signals, sure, pool, places)
        places = k - len(sure)
        if not places:
            return sure
        plans = _plans(pool, places, sure[known[sure]], most=min(_GROUPS * k, _CLIENTS))
        products = centred_products(signals, around)

        def pull(plan: _Plan) -> Floats:
            if not len(plan.selected):
                return np.zeros(len(plan.clients))
            return products(plan.clients, plan.selected).sum(axis=1, dtype=float)

        inner = (products(plan.clients, plan.clients) for plan in plans)
        labels, groups = [plan.labels for plan in plans], [plan.groups for plan in plans]
        final = (each if len(plans) > 1 else map)(planned, inner, map(pull, plans), labels, groups)

        def one_group(plan: _Plan, labels: Ints) -> Ints:
            return plan.clients[labels == (0 if len(plan.selected) else rng.integers(plan.groups))]

        return np.concatenate([sure, *map(one_group, plans, final)])


def _with_overdue(signals: Signals, sure: Ints, pool: Ints, places: int) -> tuple[Ints, Ints]:
    """Clients sure to be selected, now with those that waited far too long after an absence; and the rest of the pool.

    Raised turns no longer say who was selected, and a client that fits into no balanced group would be left out each
    time. So a client that waited 1.5 times the pool's median is selected. Where no client was absent, nothing changes.
    """
    waited = signals.waited[pool]
    overdue = (signals.missed_turns[pool] > 0) & (waited > _OVERDUE * np.median(waited))
    first = pool[overdue][np.argsort(-waited[overdue], kind="stable")][:places]
    return np.concatenate([sure, first]), pool[~np.isin(pool, first)]


@dataclass(frozen=True)
class _Plan:
    """Some places of the cohort, the clients to fill them from, and those already selected.

    Group 0 has `places` clients beside the selected ones. The other groups are of the same size in all. Clients left
    over are in no group and do not count in the objective.
    """

    clients: Ints
    places: int
    selected: Ints

    @property
    def size(self) -> int:
        """Clients in a group."""
        return self.places + len(self.selected)

    @property
    def groups(self) -> int:
        return 1 + (len(self.clients) - self.places) // self.size

    @property
    def labels(self) -> Ints:
        """The group of each client, before any swap."""
        positions = np.arange(len(self.clients)) + len(self.selected)
        return np.minimum(positions // self.size, self.groups)


def _plans(pool: Ints, places: int, selected: Ints, *, most: int) -> list[_Plan]:
    """One plan for the whole pool if it has at most `most` clients, else several with at most that many each.

    The mean of a part differs from the population's, and its groups share the difference: with more groups each has
    less of it.
    """
    count = -(-places // _PLACES) if len(pool) > most else 1
    parts = np.array_split(pool, count)
    shares = [len(share) for share in np.array_split(np.arange(places), count)]
    return [
        _Plan(part[:most], share, selected[i::count])
        for i, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]


def planned(inner: Floats, pull: Floats, labels: Ints, groups: int) -> Ints:
    """The labels after swaps between groups, made as long as they lower the sum over groups g of |s_g|^2.

    s_g is the sum of g's centred updates. `inner` has their inner products, `pull` those with the sum of the clients
    already selected, which are in group 0. Exchanging i in g for j in h adds 2 <u_j - u_i, s_g> + |u_j - u_i|^2 to
    |s_g|^2, and likewise for h. That holds for any symmetric `inner`, also from distances that are not Euclidean. It
    terminates: a swap must gain more than the rounding error, and there are at most `_PASSES` passes over the clients.
    """
    inner, pull, labels = inner.astype(np.float64), pull.astype(np.float64), labels.copy()
    everyone = np.arange(len(labels))
    counts = np.append(np.ones(groups), 0.0)  # the last label means no group
    member = np.zeros((len(labels), groups + 1))
    member[everyone, labels] = 1.0
    along = np.asfortranarray(inner @ member)  # <u_i, s_g>
    along[:, 0] += pull
    squares = np.diagonal(inner)
    pairwise = squares[:, None] + squares - 2 * inner  # |u_i - u_j|^2
    enough = max(1e-9 * np.abs(squares).sum(), 1e-13 * np.abs(inner).sum())
    own, weight = along[everyone, labels], counts[labels]  # <u_j, s> of j's own group; 0 if it is in none
    for _ in range(_PASSES):
        improved = False
        for i in everyone:
            g = labels[i]
            change = counts[g] * (2 * (along[:, g] - along[i, g]) + pairwise[i])
            change += weight * (2 * (along[i, labels] - own) + pairwise[i])
            change[labels == g] = 0.0
            j = int(np.argmin(change))
            if change[j] < -enough:
                h = labels[j]
                step = inner[j] - inner[i]
                along[:, g] += step
                along[:, h] -= step
                labels[i], labels[j] = h, g
                own, weight = along[everyone, labels], counts[labels]
                improved = True
        if not improved:
            break
    return labels
