"""Balanced: a cohort whose mean update is close to the population's, without rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from equifl._numerics.checks import generator, require
from equifl.selectors.base import Rng, check_call
from equifl.selectors.planning import Plan, balanced_labels, plans_for
from equifl.selectors.unknown_clients import unknown_first, warn_without
from equifl.signals import Ints, Signals

Prefer = Literal["random", "loss"]


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """All available clients are split into balanced groups of k, anew in each round, and one group is selected.

    The groups minimise sum over groups of |sum over members of (u_i - u_mean)|^2, by swaps from a random start
    (anticlustering; Papenberg and Klau 2021), as in `Rota`, but over all clients and not over those with the fewest
    turns. It is the half of Rota that makes a cohort represent the population. Participation is equal on average if k
    divides the clients that are available. If not, the swaps choose who is left over, those without whom the groups
    are most alike; where some updates are far longer than others, a client may never be selected. Rota's turns rule
    that out.

    Clients whose update is unknown come first, in random order. A split covers a random part of many clients: 32
    groups, at most 2,048 clients; k above 128 is then selected by several splits.

    Use it where a cohort must represent the population and turns do not matter, and with `prefer="loss"` where clients
    with high losses should be served first without a cohort that is one-sided for it.

    Args:
        prefer: which group is selected: one at "random", or the one with the highest mean "loss". Unknown losses do
            not count in the mean; if no loss is known, a group is selected at random, with a warning.

    >>> signals = Signals(updates=[[-2.0], [2.0], [-1.0], [1.0]], losses=[1.0, 1.0, 0.5, 0.5])
    >>> sorted(Balanced(prefer="loss").select(signals, 2, rng=0).tolist())
    [0, 1]
    """

    prefer: Prefer = "random"

    def __post_init__(self) -> None:
        options = get_args(Prefer)
        require("prefer", self.prefer, self.prefer in options, " or ".join(map(repr, options)))

    @property
    def needs(self) -> tuple[str, ...]:
        """Updates, and losses if these decide which group is selected."""
        return ("updates", "losses") if self.prefer == "loss" else ("updates",)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)
        by_loss = self.prefer == "loss" and not warn_without(
            signals, "losses", "it selected a balanced group at random"
        )

        def one_group(plan: Plan, labels: Ints) -> Ints:
            groups = [plan.clients[labels == group] for group in range(plan.groups)]
            if not by_loss:
                return groups[draws.integers(plan.groups)]
            known = [signals.losses[group][signals.knows_loss[group]] for group in groups]
            return groups[int(np.argmax([losses.mean() if len(losses) else -1.0 for losses in known]))]

        def choose(candidates: Ints, places: int) -> Ints:
            if places in (0, len(candidates)):
                return candidates[:places]
            plans = plans_for(draws.permutation(candidates), places, candidates[:0], places)
            return np.concatenate(list(map(one_group, plans, balanced_labels(signals, plans))))

        return unknown_first(signals, k, known=signals.knows_update, rng=draws, choose=choose, needs=("updates",))
