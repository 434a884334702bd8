"""The house rules, the same for every selector: how many, from whom, and what to do with strangers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, get_args, runtime_checkable

import numpy as np

from equifl.checks import integer, require
from equifl.distances import GIBIBYTE
from equifl.maximizers import lazy_greedy, stochastic_greedy
from equifl.objectives import Scale, SetFunction
from equifl.signals import Bools, Ints, Signals


@runtime_checkable
class Selector(Protocol):
    """Whatever has this method is a selector, ours or yours; `equifl.testing.SelectorContract` tests it.

    It keeps nothing between calls: memory is in `signals`, randomness in `rng`. It may say in an attribute `needs`
    which of "losses" and "updates" it looks at, so that nobody computes or sends the other for it.
    """

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """K distinct ids of available clients, in the order of choice."""
        ...


@runtime_checkable
class HasObjective(Protocol):
    """A selector that maximises a set function, and can say which."""

    def objective(self, signals: Signals) -> SetFunction:
        """What it would maximise for these signals."""
        ...


def needs(selector: object) -> frozenset[str]:
    """Which of "losses" and "updates" a selector looks at: both, if it does not say."""
    return frozenset(getattr(selector, "needs", ("losses", "updates")))


def cohort_size(signals: Signals, k: int) -> int:
    """k, or everyone who is available with a warning if they are fewer."""
    k = integer("k", k, least=1)
    available = int(signals.available.sum())
    if k > available:
        message = f"k = {k}, but only {available} of {signals.n} clients are available: all of them are selected"
        warnings.warn(message, stacklevel=4)
    return min(k, available)


def require_cohort(cohort: Ints, signals: Signals, k: int, name: str) -> Ints:
    """What a selector chose, if it is what `Selector.select` promises; for those who call selectors of others."""
    ids = np.asarray(cohort)
    ok = ids.shape == (k,) and ids.dtype.kind in "iu" and len(np.unique(ids)) == k
    ok = ok and bool(((ids >= 0) & (ids < signals.n)).all() and signals.available[ids].all())
    if not ok:
        raise ValueError(f"{name}: chose {ids.tolist()}; allowed: {k} different ids of available clients, as an array")
    return ids.astype(np.int64, copy=False)


def warn_if_deaf(signals: Signals, known: Bools) -> None:
    """Say so if a choice is random because nobody sends what the selector needs, though they send the other."""
    heard = {"losses": signals.knows_loss.any(), "updates": signals.knows_update.any()}
    if not known.any() and any(heard.values()):
        missing = " or ".join(name for name, some in heard.items() if not some) or "losses with updates"
        warnings.warn(f"no client has sent {missing} yet, which this selector needs: it chose at random", stacklevel=5)


def strangers_first(
    signals: Signals, k: int, *, known: Bools, rng: np.random.Generator, choose: Callable[[Ints, int], Ints]
) -> Ints:
    """Those never heard from in random order, then whom `choose(candidates, seats)` picks from the others.

    `known` says of whom the selector has heard what it needs. A stranger who was asked, stayed silent, and has
    been asked more often than those who are known were on average goes to the end of the queue, so
    that a device that never answers cannot hold a seat for ever.
    """
    k = cohort_size(signals, k)
    warn_if_deaf(signals, known)
    times = signals.times_selected
    patience = times[known].mean() if known.any() else np.inf
    available = np.flatnonzero(signals.available)
    strangers = rng.permutation(available[~known[available]])
    silent = times[strangers] > patience
    first = strangers[~silent][:k]
    candidates = available[known[available]]
    chosen = choose(candidates, min(k - len(first), len(candidates)))
    last = strangers[silent][: k - len(first) - len(chosen)]
    return np.concatenate([first, chosen, last])


def check_greedy(*, sample: int | None, scale: Scale = "absolute", memory_limit: int = GIBIBYTE) -> None:
    """Refuse bad parameters of the submodular selectors when they are made, not in the first round."""
    if sample is not None:
        integer("sample", sample, least=1)
    require("scale", scale, scale in get_args(Scale), " or ".join(map(repr, get_args(Scale))))
    integer("memory_limit", memory_limit, least=1)


def maximise(function: SetFunction, signals: Signals, k: int, *, sample: int | None, rng: np.random.Generator) -> Ints:
    """The cohort of the largest value by lazy greedy, or by stochastic greedy if `sample` says how many to try."""

    def choose(candidates: Ints, seats: int) -> Ints:
        if sample is None:
            return lazy_greedy(function, seats, candidates=candidates)
        return stochastic_greedy(function, seats, sample=sample, rng=rng, candidates=candidates)

    return strangers_first(signals, k, known=function.known, rng=rng, choose=choose)
