"""The rules that are the same for every selector: how many, from whom, and what to do with unknown clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from equifl._numerics.checks import generator, integer, require
from equifl._numerics.distances import GIBIBYTE
from equifl.maximizers import lazy_greedy, stochastic_greedy
from equifl.objectives import Scale, SetFunction
from equifl.selectors.base import Rng, sample_of
from equifl.signals import Bools, Ints, Signals


class MaximisesObjective:
    """Selects the cohort that maximises `objective`; the selectors of the paper differ in that alone."""

    sample: int | None

    def objective(self, signals: Signals) -> SetFunction:
        """What is maximised."""
        raise NotImplementedError

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        return maximise(self.objective(signals), signals, k, sample=sample_of(self), rng=rng)


def check_call(signals: Any, k: int) -> None:
    """Refuse what is no `Signals`, or no number of clients."""
    if not isinstance(signals, Signals):
        raise ValueError(
            f"signals: got {type(signals).__name__}; expected equifl.Signals, for example Signals(updates=array) or "
            "what SignalStore.signals(round) gives"
        )
    integer("k", k, least=1)


def cohort_size(signals: Signals, k: int) -> int:
    """k, or everyone who is available with a warning if they are fewer."""
    check_call(signals, k)
    available = int(signals.available.sum())
    if k > available:
        message = f"k = {k}, but only {available} of {signals.n} clients are available: all of them are selected"
        warnings.warn(message, stacklevel=4)
    return min(k, available)


def warn_if_uninformed(signals: Signals, known: Bools) -> None:
    """Say so if a choice is random because nobody sends what the selector needs, though they send the other."""
    heard = {"losses": signals.knows_loss.any(), "updates": signals.knows_update.any()}
    if not known.any() and any(heard.values()):
        missing = " or ".join(name for name, some in heard.items() if not some) or "losses with updates"
        warnings.warn(f"no client has sent {missing} yet, which this selector needs: it chose at random", stacklevel=5)


def must_wait(signals: Signals, order: Ints, k: int, known: Bools) -> Bools:
    """Of available clients in the order of a queue, which ones wait, though unknown, until the others are seated.

    Two kinds do. Who was asked n times and never answered is asked again 1, 2, 4, ... 2^(n-1) rounds later. Who joined
    after the first round: of those still unknown no more than their share of the k seats, rounded up, do not wait.
    """
    unknown = ~known[order]
    asked = signals.times_selected[order]
    mute = unknown & (asked > 0) & (signals.round < asked_again(signals, order)) & known.any()
    late = unknown & (signals.joined[order] > 0)
    share = -(-k * int(late.sum()) // max(1, int(signals.available.sum())))
    over = late & ~mute
    over[np.flatnonzero(over)[:share]] = False
    return mute | over


def asked_again(signals: Signals, ids: Ints) -> Ints:
    """The first round in which a client that never answered is asked once more: the wait doubles each time."""
    wait = 2 ** np.clip(signals.times_selected[ids] - 1, 0, 40)
    return np.where(signals.times_selected[ids] > 0, signals.last_selected[ids] + 1 + wait, 0)


def unknown_first(signals: Signals, k: int, *, known: Bools, rng: Rng, choose: Callable[[Ints, int], Ints]) -> Ints:
    """Unknown clients in random order, then whom `choose(candidates, seats)` picks from the others.

    `known` says of whom the selector knows what it needs. Unknown clients come first, because one must be known to be
    represented, but for those who `must_wait`: these take what seats are left.
    """
    k = cohort_size(signals, k)
    warn_if_uninformed(signals, known)
    available = np.flatnonzero(signals.available)
    unknown = generator(rng).permutation(available[~known[available]])
    waits = must_wait(signals, unknown, k, known)
    first, last = unknown[~waits][:k], unknown[waits]
    candidates = available[known[available]]
    chosen = choose(candidates, min(k - len(first), len(candidates)))
    last = last[np.argsort(asked_again(signals, last), kind="stable")]
    return np.concatenate([first, chosen, last[: k - len(first) - len(chosen)]])


def check_greedy(*, sample: int | None, scale: Scale = "absolute", memory_limit: int = GIBIBYTE) -> None:
    """Refuse bad parameters of the submodular selectors when they are made, not in the first round."""
    if sample is not None:
        integer("sample", sample, least=1)
    require("scale", scale, scale in get_args(Scale), " or ".join(map(repr, get_args(Scale))))
    integer("memory_limit", memory_limit, least=1)


def maximise(function: SetFunction, signals: Signals, k: int, *, sample: int | None, rng: Rng) -> Ints:
    """The cohort of the largest value by lazy greedy, or by stochastic greedy if `sample` says how many to try."""
    draws = generator(rng)

    def choose(candidates: Ints, seats: int) -> Ints:
        if sample is None:
            return lazy_greedy(function, seats, candidates=candidates)
        return stochastic_greedy(function, seats, sample=sample, rng=draws, candidates=candidates)

    return unknown_first(signals, k, known=function.known, rng=draws, choose=choose)
