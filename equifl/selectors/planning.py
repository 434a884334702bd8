"""What Rota, Balanced and Reshuffle share: whose turn it is, and groups of clients with balanced mean updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from equifl._numerics.bounds import Bounds
from equifl._numerics.distances import centred_products
from equifl.signals import Bools, Floats, Ints, Signals

_GROUPS = 32  # in one plan: more hardly improve the balance of the selected group
_CLIENTS = 2048  # in one plan: their Gram matrix takes 32 MiB
_PASSES = 100  # over the clients, in search of swaps: a handful suffice, but rounding could make it cycle
_PLACES = 128  # in one plan: 2,048 clients make 16 such groups; with fewer groups each would be less balanced

Each: TypeAlias = Callable[..., Iterable[Any]]  # `map`, or an equivalent that runs elsewhere


def by_turns(signals: Signals, rng: np.random.Generator, *, known: Bools | None = None) -> Ints:
    """The available clients, fewest turns first; among equals those that are not `known`, then by chance.

    Drawn anew every round this is a permutation of all clients in each epoch of N / k rounds, played in order: who had
    a turn in this epoch has one more than who had not.
    """
    queue = rng.permutation(np.flatnonzero(signals.available))
    turns = signals.turns[queue]
    return queue[np.argsort(turns, kind="stable") if known is None else np.lexsort((known[queue], turns))]


@dataclass(frozen=True)
class Plan:
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
        """How many groups there are."""
        return 1 + (len(self.clients) - self.places) // self.size

    @property
    def labels(self) -> Ints:
        """The group of each client, before any swap."""
        positions = np.arange(len(self.clients)) + len(self.selected)
        return np.minimum(positions // self.size, self.groups)


def plans_for(pool: Ints, places: int, selected: Ints, k: int) -> list[Plan]:
    """One plan for the whole pool if it has at most 32 k and 2,048 clients, else one or more of at most so many each.

    The pool must be in random order: a plan covers a part of it. The mean of a part differs from the population's, and
    its groups share the difference: with more groups each has less of it.
    """
    most = min(_GROUPS * k, _CLIENTS)
    count = -(-places // _PLACES) if len(pool) > most else 1
    parts = np.array_split(pool, count)
    shares = [len(share) for share in np.array_split(np.arange(places), count)]
    return [
        Plan(part[:most], share, selected[i::count]) for i, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]


def balanced_labels(
    signals: Signals, plans: Sequence[Plan], *, around: tuple[Bounds, Floats] | None = None, each: Each = map
) -> Iterable[Ints]:
    """The group of each client of each plan, such that all groups have nearly the population's mean update.

    Args:
        signals: with updates or distances of all clients in the plans.
        plans: who is grouped with whom.
        around: bounds of the updates and their mean; None = find them.
        each: runs several plans; `map`, or an equivalent that runs them elsewhere.
    """
    products = centred_products(signals, around)

    def pull(plan: Plan) -> Floats:
        if not len(plan.selected):
            return np.zeros(len(plan.clients))
        return products(plan.clients, plan.selected).sum(axis=1, dtype=float)

    inner = (products(plan.clients, plan.clients) for plan in plans)
    labels, groups = [plan.labels for plan in plans], [plan.groups for plan in plans]
    return (each if len(plans) > 1 else map)(planned, inner, map(pull, plans), labels, groups)


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
