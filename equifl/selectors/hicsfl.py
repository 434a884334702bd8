"""HiCS-FL (Chen and Vikalo 2024): clusters by the update of the output bias, balanced ones are preferred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator, integer, number
from equifl._numerics.similarities import row_cosines
from equifl._numerics.ward import ward
from equifl.selectors.base import Rng, check_call
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Floats, Ints, Signals

_MOST = 1e300  # so that differences of two are finite


@dataclass(frozen=True, kw_only=True)
class HiCSFL:
    """Draws k times a cluster in proportion to exp(gamma_t mean entropy), and a client of it in proportion to size.

    1. The entropy H_i of softmax(b_i / T) estimates that of a client's labels: b_i is the change of the output layer's
       bias, which grows for classes that the client has.
    2. Ward makes k clusters from the distances arccos(<b_i, b_j> / |b_i| |b_j|) + lam |H_i - H_j|.
    3. gamma_t = gamma (1 - t / rounds) falls to 0 over the training: first clusters of balanced clients are preferred,
       in the end all are alike.

    A cluster whose clients are all selected is not drawn again. The paper draws clients of a cluster by size, their
    code uniformly: this is the paper's. Their code takes angles of the whole output layer, and gives the matrix to
    Ward as if rows were coordinates; here it is the bias, and distances are distances. Updates here are mean gradients
    of local steps, and `temperature` is in that unit: the authors' 0.0025 at their learning rate 0.001 and about 38
    steps.

    Clients whose `bias_updates` are unknown come first, in random order. Quadratic in N, in time and memory.

    Use it where some clients have balanced data and others do not, and early accuracy counts. Reference: H. Chen,
    H. Vikalo, *Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated Learning*, NeurIPS
    2024.

    Args:
        temperature: T, above 0.
        lam: what a difference of entropies counts beside an angle, 0 or more.
        gamma: how much balanced clusters are preferred in round 0, 0 or more.
        rounds: rounds of the training, in which gamma falls to 0; None = it stays.

    >>> signals = Signals(bias_updates=[[-1.0, 1.0], [-1.0, 1.1], [0.0, 0.01], [0.01, 0.0]])
    >>> HiCSFL().entropies(signals).round(1).tolist()
    [0.0, 0.0, 0.7, 0.7]
    """

    needs: ClassVar[tuple[str, ...]] = ("bias_updates",)

    temperature: float = 0.07
    lam: float = 10.0
    gamma: float = 4.0
    rounds: int | None = None

    def __post_init__(self) -> None:
        number("temperature", self.temperature, "above 0", lambda value: 0 < value < np.inf)
        for name in ("lam", "gamma"):
            number(name, getattr(self, name), "0 or more", lambda value: 0 <= value < np.inf)
        if self.rounds is not None:
            integer("rounds", self.rounds, least=1)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)
        gamma = self.gamma * max(0.0, 1 - signals.round / self.rounds) if self.rounds else self.gamma

        def choose(candidates: Ints, places: int) -> Ints:
            if places in (0, len(candidates)):
                return candidates[:places]
            entropy = self.entropies(signals)[candidates]
            _, cluster = np.unique(self.clusters(signals, candidates, places), return_inverse=True)
            mean = np.bincount(cluster, weights=entropy) / np.bincount(cluster)
            preference = np.exp(gamma * (mean - mean.max()))
            left, chosen = np.ones(len(candidates), bool), []
            for _ in range(places):
                open_ = np.bincount(cluster[left], minlength=len(mean)) > 0
                drawn = draws.choice(len(mean), p=open_ * preference / (open_ * preference).sum())
                pool = np.flatnonzero(left & (cluster == drawn))
                sizes = signals.sizes[candidates[pool]]
                chosen.append(int(draws.choice(pool, p=sizes / sizes.sum())))
                left[chosen[-1]] = False
            return candidates[chosen]

        known = signals.knows("bias_updates")
        return unknown_first(signals, k, known=known, rng=draws, choose=choose, needs=self.needs)

    def entropies(self, signals: Signals) -> Floats:
        """(N,) the estimated entropy of each client's labels; nan where its bias is unknown."""
        if signals.bias_updates is None:
            return np.full(signals.n, np.nan)
        with np.errstate(over="ignore"):
            scaled = -signals.bias_updates / self.temperature  # an update is what is subtracted from the model
        scaled = scaled.clip(-_MOST, _MOST)
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        shares = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
        found: Floats = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        return found

    def clusters(self, signals: Signals, ids: Ints, count: int) -> Ints:
        """(len(ids),) a label of the cluster of each of these clients."""
        assert signals.bias_updates is not None
        entropy = self.entropies(signals)[ids]
        apart = np.arccos(row_cosines(signals.bias_updates, ids))
        for row, own in zip(apart, entropy, strict=True):
            row += self.lam * np.abs(own - entropy)
        return ward(apart).clusters(count)
