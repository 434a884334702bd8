"""UnionFL: any submodular objective, minus a penalty for clients selected in recent rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, cast

import numpy as np

from equifl._numerics.checks import integer, number, require
from equifl.objectives import Modular, SetFunction
from equifl.selectors.base import HasObjective, needs, objective_of
from equifl.selectors.divfl import DivFL
from equifl.selectors.greedy_selection import MaximisesObjective, check_greedy
from equifl.signals import Bools, Signals


@dataclass(frozen=True, kw_only=True)
class UnionFL(MaximisesObjective):
    """Maximises h(S) = f(S) - mu * |S n U|, U = all clients selected in the rounds u_t before this one (eq. 14).

    A mu that is given is the paper's: it is compared with f as it is, for DivFL a sum of N distances. Without one, f
    has distances relative to their mean, and mu is `mu_factor` of these: it means the same for every model and round.
    mu_factor = 3 with window = 5 was the most even of seven pairs on MNIST and CIFAR-10 together, by 20 seeds that no
    other result uses (tools/tuning.py, results/tuning.json); a larger factor made hardly a difference.

    The penalty is modular: mu for each member of U; mu = 0 leaves f. h is not monotone, and the paper asks for at
    most k clients. Training needs k, so the cohort is always filled to k. The approximation guarantee holds for "at
    most k": see the third example. Clients that f has no signals of come first, in random order. With f of
    DivFL or SubTrunc it is quadratic in N, in time and up to their `memory_limit` in memory; linear with `sample`.

    Args:
        mu: penalty for repeated selection, 0 or more; None = `mu_factor` times the mean distance.
        mu_factor: the penalty in mean distances, 0 or more; not beside `mu`. `inner` must have a `scale`, as `DivFL`
            and `SubTrunc` have.
        window: u_t, the past rounds that count: an integer w for the last w rounds, offsets such as {1, 5} for
            the last round and the fifth before this one, or a function of the round that gives either. Offsets need
            `signals.history`, which a `SignalStore` keeps.
        inner: the selector whose objective is f: `DivFL()`, `SubTrunc(...)`, or your own with an `objective`. One that
            is given absolute distances, as by SubTrunc's `b`, is refused without `mu`, unless its scale is "relative".
        sample: r of stochastic greedy (eq. 17); None = that of the inner selector.

    >>> updates = [[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [5.0, 5.0]]
    >>> signals = Signals(updates=updates, round=3, last_selected=[2, 1, -1, -1], history=[[1, 1], [2, 0]])
    >>> UnionFL(mu=1.0, window=5).select(signals, 2, rng=0).tolist()
    [2, 3]
    >>> UnionFL(mu=1.0, window={2, 4}).select(signals, 2, rng=0).tolist()  # of rounds -1 and 1: client 1
    [0, 3]
    >>> from equifl.maximizers import random_greedy
    >>> h = UnionFL(mu=1.0).objective(signals)
    >>> len(random_greedy(h, 2, rng=0)) <= 2
    True
    """

    mu: float | None = None
    mu_factor: float = 3.0
    window: int | tuple[int, ...] | Callable[[int], int | Iterable[int]] = 5
    inner: HasObjective = field(default_factory=DivFL)
    sample: int | None = None

    def __post_init__(self) -> None:
        if self.mu is not None:
            number("mu", self.mu, "0 or more", lambda mu: 0 <= mu < np.inf)
        number("mu_factor", self.mu_factor, "0 or more", lambda factor: 0 <= factor < np.inf)
        one = self.mu is None or self.mu_factor == type(self).mu_factor
        require("mu_factor", self.mu_factor, one, "one of the two, mu or mu_factor, as mu alone is the penalty")
        if not callable(self.window):
            object.__setattr__(self, "window", _checked_window(self.window))
        require("inner", self.inner, isinstance(self.inner, HasObjective), "a selector with an objective")
        has_scale = is_dataclass(self.inner) and hasattr(self.inner, "scale")
        require("mu", self.mu, self.mu is not None or has_scale, f"a number, as {self.inner!r} has no `scale`")
        required = self.mu is not None or not _given_absolute(self.inner)
        remedy = f"a number, as {self.inner!r} has absolute distances; or inner with scale='relative'"
        require("mu", self.mu, required, remedy)
        check_greedy(sample=self.sample)

    @property
    def needs(self) -> frozenset[str]:
        """The signals that the inner selector uses."""
        return needs(self.inner)

    def objective(self, signals: Signals, k: int | None = None) -> SetFunction:
        """h: the inner objective, minus the penalty for repeated selection; `k` is for an inner one that needs it."""
        mu, inner = self.mu, self.inner
        if mu is None:
            mu, inner = self.mu_factor, replace(cast(Any, inner), scale="relative")
        f = objective_of(inner, signals, k)
        g = Modular(self.recent(signals).astype(float))  # |S n U|
        return f - mu * g  # eq. (14)

    def recent(self, signals: Signals) -> Bools:
        """(N,) membership of U: selected in one of the rounds of the window."""
        window = _checked_window(self.window(signals.round)) if callable(self.window) else self.window
        if isinstance(window, int):
            return signals.last_selected >= max(0, signals.round - window)
        if signals.history is None:
            raise ValueError(
                f"window: {window} needs signals.history, which is missing; take the signals from a SignalStore, or "
                "give an integer"
            )
        rounds, clients = signals.history.T
        union = np.zeros(signals.n, bool)
        union[clients[np.isin(signals.round - rounds, window)]] = True
        return union


def _given_absolute(inner: Any) -> bool:
    """Whether absolute distances were asked for: by a `scale` that is not the default, or by SubTrunc's `b`."""
    if inner.scale is None:
        return getattr(inner, "b", None) is not None
    return inner.scale == "absolute" and all(f.default != "absolute" for f in fields(inner) if f.name == "scale")


def _checked_window(window: Any) -> int | tuple[int, ...]:
    """A number of rounds, or offsets in rising order."""
    if isinstance(window, str) or not isinstance(window, Iterable):
        return integer("window", window, least=1)
    return tuple(sorted({integer("window", offset, least=1) for offset in window}))
