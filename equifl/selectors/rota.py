"""Rota: everybody takes part equally often, in cohorts that are each a miniature of the population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from equifl.distances import centred_gram
from equifl.selectors.rules import cohort_size, warn_if_deaf
from equifl.signals import Floats, Ints, Signals

_GROUPS = 32  # planned at a time: more make the group that is played hardly better
_CLIENTS = 2048  # planned at a time: their Gram matrix takes 32 MiB


@dataclass(frozen=True, kw_only=True)
class Rota:
    """Plays a group of those who took part least often, chosen so that their mean update is the population's.

    1. The pool is the available clients with the fewest selections. If they are fewer than k, all of them are
       selected and the pool is those with the next count.
    2. The pool is split into groups of k that minimise sum over groups of |sum over members of (u_i - u_mean)|^2,
       by swaps from a random start (anticlustering).
    3. One of the groups is played, at random. The next round plans anew with the pool that is left.

    A client whose update was never heard goes first among those with as many selections, in random order.
    From a large pool a random part is planned: 32 groups, at most 2,048 clients.

    >>> signals = Signals(updates=[[-2.0], [2.0], [-1.0], [1.0]])
    >>> sorted(Rota().select(signals, 2, rng=np.random.default_rng(0)).tolist()) in ([0, 1], [2, 3])
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("updates",)

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """K distinct ids of available clients, in the order of choice."""
        return self.select_around(None, signals, k, rng=rng)

    def select_around(self, mean: Floats | None, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """The same, for a caller who has the mean update of all clients heard from already."""
        k = cohort_size(signals, k)
        known = signals.knows_update
        warn_if_deaf(signals, known)
        if k == 0:
            return np.zeros(0, np.int64)
        times = signals.times_selected
        queue = rng.permutation(np.flatnonzero(signals.available))
        queue = queue[np.lexsort((known[queue], times[queue]))]  # fewest selections, then strangers, then chance
        count = times[queue[k - 1]]
        sure = queue[:k][(times[queue[:k]] < count) | ~known[queue[:k]]]
        pool = queue[(times[queue] == count) & known[queue]]
        seats = k - len(sure)
        # More seats than can be planned: the first of the shuffled pool get them, the others balance these.
        extra = max(0, seats - _CLIENTS // 2)
        sure, pool, seats = np.concatenate([sure, pool[:extra]]), pool[extra:], seats - extra
        pool = pool[: min(_GROUPS * k, _CLIENTS)]
        gram = partial(centred_gram, signals, mean=mean)
        return np.concatenate([sure, pool[_plan(gram, sure[known[sure]], pool, seats, rng)]])


def _plan(centred: Callable[[Ints], Floats], sure: Ints, pool: Ints, seats: int, rng: np.random.Generator) -> Ints:
    """Positions in `pool` of those who get the seats beside `sure`."""
    if seats == 0 or len(pool) == seats:
        return np.arange(seats)
    gram = centred(np.concatenate([pool, sure])).astype(np.float64)
    inner, pull = gram[: len(pool), : len(pool)], gram[: len(pool), len(pool) :].sum(axis=1)
    k = seats + len(sure)
    # Group 0 sits with `sure`; then full groups of k; the rest is in no group, which costs nothing.
    groups = 1 + (len(pool) - seats) // k
    labels = np.minimum(np.arange(len(pool)) + len(sure), groups * k) // k
    _swap(inner, pull, labels, groups)
    played = 0 if len(sure) else int(rng.integers(groups))
    return np.flatnonzero(labels == played)


def _swap(inner: Floats, pull: Floats, labels: Ints, groups: int) -> None:
    """Swap members between groups, in place, while it lowers the sum over groups g of |s_g|^2.

    s_g is the sum of g's centred updates; `inner` their inner products, `pull` those with what sits in group 0
    already. Exchanging i in g for j in h adds 2 <u_j - u_i, s_g> + |u_j - u_i|^2 to |s_g|^2, and likewise for h.
    """
    everyone = np.arange(len(labels))
    counts = np.append(np.ones(groups), 0.0)  # the last label is nobody's group
    member = np.zeros((len(labels), groups + 1))
    member[everyone, labels] = 1.0
    along = np.asfortranarray(inner @ member)  # <u_i, s_g>
    along[:, 0] += pull
    squares = np.diagonal(inner)
    apart = squares[:, None] + squares - 2 * inner  # |u_i - u_j|^2
    enough = 1e-9 * squares.sum()
    own, weight = along[everyone, labels], counts[labels]  # <u_j, s> of j's own group, and whether that is one
    improved = True
    while improved:
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
