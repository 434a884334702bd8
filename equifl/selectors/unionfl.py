"""UnionFL: any submodular objective, less a price on those who took part in the last rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from equifl.checks import integer, is_number, require
from equifl.objectives import Modular, SetFunction
from equifl.selectors.divfl import DivFL
from equifl.selectors.rules import HasObjective, check_greedy, maximise, needs
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class UnionFL:
    """Maximises h(S) = f(S) - mu * |S n U|, U = everybody selected in the last `window` rounds (eq. 14).

    The price is modular: mu for each member of U. mu = 0 leaves f. h is not monotone, and the paper asks
    for at most k clients; training wants k, so the cohort is always filled to k. For the guarantee
    that belongs to "at most k", see the second example. Clients that f knows nothing of come first, in random order.

    Args:
        mu: price of taking part again, 0 or more. It is set against f, for DivFL a sum of N distances:
            with `inner=DivFL(scale="relative")` a mu means the same for every model.
        window: how many rounds a selection is remembered, 1 or more.
        inner: the selector whose objective is f: `DivFL()`, `SubTrunc(...)`, or your own with an `objective`.
        sample: r of stochastic greedy (eq. 17); None = as the inner selector says.

    >>> updates = [[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [5.0, 5.0]]
    >>> signals = Signals(updates=updates, round=3, last_selected=np.array([2, -1, -1, -1]))
    >>> UnionFL(mu=1.0, window=5).select(signals, 2, rng=np.random.default_rng(0)).tolist()
    [1, 3]
    >>> from equifl.maximizers import random_greedy
    >>> h = UnionFL(mu=1.0).objective(signals)
    >>> len(random_greedy(h, 2, rng=np.random.default_rng(0))) <= 2
    True
    """

    mu: float = 1.0
    window: int = 5
    inner: HasObjective = field(default_factory=DivFL)
    sample: int | None = None

    def __post_init__(self) -> None:
        require("mu", self.mu, is_number(self.mu) and 0 <= self.mu < np.inf, "0 or more")
        integer("window", self.window, least=1)
        require("inner", self.inner, isinstance(self.inner, HasObjective), "a selector with an objective")
        check_greedy(sample=self.sample)

    @property
    def needs(self) -> frozenset[str]:
        """What the inner objective looks at."""
        return needs(self.inner)

    def objective(self, signals: Signals) -> SetFunction:
        """h: the inner objective, less the price of being selected again."""
        f = self.inner.objective(signals)
        first_remembered = max(0, signals.round - self.window)
        g = Modular((signals.last_selected >= first_remembered).astype(float))  # |S n U|
        return f - self.mu * g  # eq. (14)

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        """K distinct ids of available clients, in the order of choice."""
        sample = getattr(self.inner, "sample", None) if self.sample is None else self.sample
        return maximise(self.objective(signals), signals, k, sample=sample, rng=rng)
