"""What a selector is: the protocol, and what callers of any selector ask of it."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from equifl.objectives import SetFunction
from equifl.signals import Ints, Signals

Rng: TypeAlias = np.random.Generator | int | None  # a generator, or a seed for one


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


def sample_of(selector: object) -> int | None:
    """R of stochastic greedy: the selector's, else that of the one inside it; None = every client, by lazy greedy."""
    sample = getattr(selector, "sample", None)
    inner = getattr(selector, "inner", None)
    return sample if sample is not None or inner is None else sample_of(inner)


def require_cohort(cohort: Ints, signals: Signals, k: int, name: str) -> Ints:
    """What a selector chose, if it is what `Selector.select` promises; for those who call selectors of others."""
    ids = np.asarray(cohort)
    ok = ids.shape == (k,) and ids.dtype.kind in "iu" and len(np.unique(ids)) == k
    ok = ok and bool(((ids >= 0) & (ids < signals.n)).all() and signals.available[ids].all())
    if not ok:
        raise ValueError(f"{name}: chose {ids.tolist()}; allowed: {k} different ids of available clients, as an array")
    return ids.astype(np.int64, copy=False)
