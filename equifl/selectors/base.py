"""The selector protocol, and functions for code that calls any selector."""

from __future__ import annotations

import warnings
from inspect import signature
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from equifl._numerics.checks import integer
from equifl.objectives import SetFunction
from equifl.signals import Floats, Ints, Signals

FROM_UPDATES = frozenset({"updates", "lengths", "bias_updates"})  # signals that a client's update gives

Rng: TypeAlias = np.random.Generator | int | None  # a generator, or a seed for one


@runtime_checkable
class Selector(Protocol):
    """Any object with this method is a selector; `equifl.testing.SelectorContract` tests it.

    A selector has no state: memory is in `signals`, randomness in `rng`. An optional attribute `needs` names which of
    "losses" and "updates" it uses, and of the rarer "durations", "label_counts", "lengths" (of updates) and
    "bias_updates"; the others are then neither computed nor sent.
    """

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """K distinct ids of available clients, in the order of choice."""
        ...


@runtime_checkable
class HasObjective(Protocol):
    """A selector that maximises a set function and returns it.

    A function that depends on the cohort's size is returned by `objective(signals, k)`: see `objective_of`.
    """

    def objective(self, signals: Signals) -> SetFunction:
        """The set function it maximises for these signals."""
        ...


@runtime_checkable
class HasWeights(Protocol):
    """A selector that also says what the reply of each member counts for, as its authors' rule has it."""

    def weights(self, signals: Signals, cohort: Ints) -> Floats:
        """(len(cohort),) how many clients each member stands for, 0 or more and finite, in the order of `cohort`.

        sum_j weights_j update_j / N estimates the mean update of all N clients. They follow from the signals for which
        the cohort was selected, and use no randomness. They sum to N, unless the rule is unbiased in expectation alone
        (1 / probability); a server rule that has not got all replies divides by the sum of those it has.
        """
        ...


def weights_of(selector: object, signals: Signals, cohort: Ints, name: str) -> Floats:
    """(len(cohort),) the weights of a selector for the signals it selected from, checked; N / len(cohort) without any.

    Raises:
        ValueError: they are not one finite number of 0 or more for each member, or all are 0; `name` is in the error.
    """
    ids = np.asarray(cohort, np.int64)
    if not len(ids) or not isinstance(selector, HasWeights):
        return np.full(len(ids), signals.n / max(1, len(ids)))
    found = np.asarray(selector.weights(signals, ids))
    ok = found.shape == ids.shape and found.dtype.kind in "iuf"
    if not (ok and bool(((found >= 0) & (found < np.inf)).all()) and found.any()):
        allowed = f"{len(ids)} finite numbers of 0 or more, one for each member, not all 0"
        raise ValueError(f"{name}: has the weights {found.tolist()}; allowed: {allowed}")
    return found.astype(np.float64)


def objective_of(selector: HasObjective, signals: Signals, k: int | None) -> SetFunction:
    """The set function that a selector maximises to select `k` clients; `k` is given to those that take it."""
    known: dict[str, Any] = {"k": k} if "k" in signature(selector.objective).parameters else {}
    return selector.objective(signals, **known)


def needs(selector: object) -> frozenset[str]:
    """Which signals a selector uses, by their names in `Signals`; losses and updates, if it has no `needs`."""
    return frozenset(getattr(selector, "needs", ("losses", "updates")))


def sample_of(selector: object) -> int | None:
    """The sample size of stochastic greedy, from the selector or its `inner`; None = lazy greedy over all clients."""
    sample = getattr(selector, "sample", None)
    inner = getattr(selector, "inner", None)
    return sample if sample is not None or inner is None else sample_of(inner)


def require_cohort(cohort: Ints, signals: Signals, k: int, name: str) -> Ints:
    """The cohort as int64, after a check that it is what `Selector.select` promises; else a ValueError."""
    ids = np.asarray(cohort)
    ok = ids.shape == (k,) and ids.dtype.kind in "iu" and len(np.unique(ids)) == k
    ok = ok and bool(((ids >= 0) & (ids < signals.n)).all() and signals.available[ids].all())
    if not ok:
        raise ValueError(f"{name}: chose {ids.tolist()}; allowed: {k} different ids of available clients, as an array")
    return ids.astype(np.int64, copy=False)


def check_call(signals: Any, k: int) -> None:
    """Raise ValueError unless `signals` is a `Signals` and `k` an integer of 1 or more."""
    if not isinstance(signals, Signals):
        raise ValueError(
            f"signals: got {type(signals).__name__}; expected equifl.Signals, for example Signals(updates=array) or "
            "what SignalStore.signals(round) gives"
        )
    integer("k", k, least=1)


def cohort_size(signals: Signals, k: int) -> int:
    """k, or the number of available clients, with a warning, if that is smaller."""
    check_call(signals, k)
    available = int(signals.available.sum())
    if k > available:
        message = f"k = {k}, but only {available} of {signals.n} clients are available: all of them are selected"
        warnings.warn(message, stacklevel=4)
    return min(k, available)
