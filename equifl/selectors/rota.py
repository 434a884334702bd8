"""Rota: everybody takes part equally often, in cohorts that are each a miniature of the population."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from equifl._numerics.checks import generator
from equifl._numerics.distances import centred_products
from equifl.selectors._common import asked_again, cohort_size, must_wait, warn_if_uninformed
from equifl.selectors.base import Rng
from equifl.signals import Floats, Ints, Signals

_GROUPS = 32  # planned at a time: more make the group that is played hardly better
_CLIENTS = 2048  # planned at a time: their Gram matrix takes 32 MiB
_OVERDUE = 1.5  # times the median wait of the pool
_PASSES = 100  # over the clients, in search of swaps: a handful are enough, and rounding could make it go on for ever
_SEATS = 128  # planned at a time: 2,048 clients make 16 groups of them; were they few, each would be less balanced

Each: TypeAlias = Callable[..., Iterable[Any]]  # `map`, or what does the same elsewhere


@dataclass(frozen=True, kw_only=True)
class Rota:
    """Plays a group of those who took part least often, chosen so that their mean update is the population's.

    1. The pool is the available clients with the fewest turns: selections, but for who was away or joined late, who
       counts as about as far as the others (`SignalStore`, which says how much is made up for). If they are fewer
       than k, all of them are selected and the pool is those with the next count.
    2. The pool is split into groups of k that minimise sum over groups of |sum over members of (u_i - u_mean)|^2,
       by swaps from a random start (anticlustering), in at most 100 passes over the clients.
    3. One of the groups is played, at random. The next round plans anew with the pool that is left.

    An unknown client goes first among those with as many turns, in random order, unless it must wait: because it was
    asked and never answered, or because too many joined at once.
    From a large pool a random part is planned: 32 groups, at most 2,048 clients. From such a pool a large cohort comes
    from several parts, each of which gets at most 128 seats.

    >>> signals = Signals(updates=[[-2.0], [2.0], [-1.0], [1.0]])
    >>> sorted(Rota().select(signals, 2, rng=0).tolist()) in ([0, 1], [2, 3])
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("updates",)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        return self.select_around(None, signals, k, rng=rng)

    def select_around(self, mean: Floats | None, signals: Signals, k: int, *, rng: Rng, each: Each = map) -> Ints:
        """The same, for a caller who has the mean update of all known clients, or a `map` to plan elsewhere."""
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
        seats = k - len(sure)
        if seats in (0, len(pool)):
            return np.concatenate([sure, pool[:seats]])
        sure, pool = _with_overdue(signals, sure, pool, seats)
        seats = k - len(sure)
        if not seats:
            return sure
        tables = _set_tables(pool, seats, sure[known[sure]], most=min(_GROUPS * k, _CLIENTS))
        products = centred_products(signals, mean)

        def pull(table: _Table) -> Floats:
            nobody = np.zeros(len(table.clients))
            return products(table.clients, table.seated).sum(axis=1, dtype=float) if len(table.seated) else nobody

        inner = (products(table.clients, table.clients) for table in tables)
        labels, groups = [table.labels for table in tables], [table.groups for table in tables]
        plans = (each if len(tables) > 1 else map)(planned, inner, map(pull, tables), labels, groups)

        def played(table: _Table, plan: Ints) -> Ints:
            return table.clients[plan == (0 if len(table.seated) else rng.integers(table.groups))]

        return np.concatenate([sure, *map(played, tables, plans)])


def _with_overdue(signals: Signals, sure: Ints, pool: Ints, seats: int) -> tuple[Ints, Ints]:
    """Who is sure of a seat, and the rest of the pool, if clients whose counts were raised have waited far too long.

    Raised counts no longer tell who was served, and a client that fits into no balanced group would be left out each
    time. So whoever waited half as long again as most of the pool is sure of a seat; where nobody was away, no one.
    """
    waited = signals.waited[pool]
    overdue = (signals.missed_turns[pool] > 0) & (waited > _OVERDUE * np.median(waited))
    first = pool[overdue][np.argsort(-waited[overdue], kind="stable")][:seats]
    return np.concatenate([sure, first]), pool[~np.isin(pool, first)]


@dataclass(frozen=True)
class _Table:
    """Some of the seats: which clients they are planned for, and who sits there already.

    Group 0 sits with these; then full groups of as many; the rest is in no group, which costs nothing.
    """

    clients: Ints
    seats: int
    seated: Ints

    @property
    def size(self) -> int:
        """Of a group."""
        return self.seats + len(self.seated)

    @property
    def groups(self) -> int:
        return 1 + (len(self.clients) - self.seats) // self.size

    @property
    def labels(self) -> Ints:
        """The group of each client, before anybody swaps."""
        places = np.arange(len(self.clients)) + len(self.seated)
        return np.minimum(places // self.size, self.groups)


def _set_tables(pool: Ints, seats: int, seated: Ints, *, most: int) -> list[_Table]:
    """One for the whole pool if that is no more than `most`, else as many as it takes, with so many clients each.

    A part of the pool is not balanced itself, and its groups share what it is off: the more they are, the better.
    """
    count = -(-seats // _SEATS) if len(pool) > most else 1
    parts = np.array_split(pool, count)
    shares = [len(share) for share in np.array_split(np.arange(seats), count)]
    return [
        _Table(part[:most], share, seated[i::count]) for i, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]


def planned(inner: Floats, pull: Floats, labels: Ints, groups: int) -> Ints:
    """The labels after swaps of members between groups, while it lowers the sum over groups g of |s_g|^2.

    s_g is the sum of g's centred updates; `inner` their inner products, `pull` those with what sits in group 0
    already. Exchanging i in g for j in h adds 2 <u_j - u_i, s_g> + |u_j - u_i|^2 to |s_g|^2, and likewise for h.
    That holds for any symmetric `inner`, also one from distances that no updates can have. A swap must gain more than
    rounding could feign, and there are at most `_PASSES` passes over the clients: so it ends.
    """
    inner, pull, labels = inner.astype(np.float64), pull.astype(np.float64), labels.copy()
    everyone = np.arange(len(labels))
    counts = np.append(np.ones(groups), 0.0)  # the last label is nobody's group
    member = np.zeros((len(labels), groups + 1))
    member[everyone, labels] = 1.0
    along = np.asfortranarray(inner @ member)  # <u_i, s_g>
    along[:, 0] += pull
    squares = np.diagonal(inner)
    apart = squares[:, None] + squares - 2 * inner  # |u_i - u_j|^2
    enough = max(1e-9 * np.abs(squares).sum(), 1e-13 * np.abs(inner).sum())
    own, weight = along[everyone, labels], counts[labels]  # <u_j, s> of j's own group, and whether that is one
    for _ in range(_PASSES):
        improved = False
        for i in everyone:
            g = labels[i]
            change = counts[g] * (2 * (along[:, g] - along[i, g]) + apart[i])
            change += weight * (2 * (along[i, labels] - own) + apart[i])
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
