"""A non-convex problem whose L is known, and rounds of federated training on it with every gradient exact as well.

Client i has examples (x, y) with ||x|| = 1 and y = x^T v_i + noise; its v_i is its own. The loss of an example is
Welsch's, l(w) = rho(r) with r = x^T w - y and rho(r) = 1 - exp(-r^2 / 2): between 0 and 1, and not convex.
    rho'(r)  = r exp(-r^2 / 2), at most exp(-1/2)
    rho''(r) = (1 - r^2) exp(-r^2 / 2), from -2 exp(-3/2) = -0.446 at r^2 = 3 to 1 at r = 0
The Hessian of l is rho''(r) x x^T, of norm |rho''(r)| ||x||^2 <= 1. So every example's loss is L-smooth with L = 1,
and so are all f_i and f. At the start, w = 0, the Hessian of f has a negative eigenvalue. A batch is drawn with
replacement, so its gradient has the variance of one example's over the batch size, which is computed from all
examples wherever a client stands.

Every round the selector sees every client's exact loss and gradient at w_k, before batches are drawn. All clients
run E local steps, since the bias of a cohort is its mean step less everybody's; only the cohort's are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equifl import Signals
from equifl.selectors import Selector

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

L = 1.0
CLIENTS, COHORT, EXAMPLES, DIMENSIONS = 20, 5, 30, 3
STEPS, BATCH = 5, 4
LENGTH, SPREAD = 1.5, 0.4  # of the clients' mean v, and of their own v_i around it in each dimension


@dataclass(frozen=True)
class Problem:
    """What every client has: x (N, q, d) of norm 1, y (N, q)."""

    x: Floats
    y: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Problem:
        """Clients around a common v, each with a v_i of its own and directions it favours."""
        v = LENGTH * _unit(rng.normal(size=DIMENSIONS)) + SPREAD * rng.normal(size=(CLIENTS, 1, DIMENSIONS))
        favoured = rng.normal(size=(CLIENTS, 1, DIMENSIONS))
        x = _unit(favoured + rng.normal(size=(CLIENTS, EXAMPLES, DIMENSIONS)))
        return cls(x, (x * v).sum(axis=2) + 0.2 * rng.normal(size=(CLIENTS, EXAMPLES)))

    def residuals(self, w: Floats) -> Floats:
        """(N, q) r = x^T w - y, for one model or one a client."""
        models = np.broadcast_to(w, (len(self.x), w.shape[-1]))
        return np.asarray((self.x @ models[:, :, None])[:, :, 0] - self.y)

    def losses(self, w: Floats) -> Floats:
        """(N,) f_i(w)."""
        return np.asarray(-np.expm1(-(self.residuals(w) ** 2) / 2).mean(axis=1))

    def gradients(self, w: Floats) -> Floats:
        """(N, d) the exact gradients of all f_i."""
        return self._gradients(derivative(self.residuals(w)))

    def noisy(self, w: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
        """(N, d) stochastic gradients, (N, d) exact ones, and the largest variance of the former."""
        derivatives = derivative(self.residuals(w))
        exact = self._gradients(derivatives)
        clients = np.arange(len(self.x))[:, None]
        drawn = rng.integers(self.x.shape[1], size=(len(self.x), BATCH))
        noisy = (derivatives[clients, drawn][:, None] @ self.x[clients, drawn])[:, 0] / BATCH
        variances = (np.square(derivatives).mean(axis=1) - np.square(exact).sum(axis=1)) / BATCH  # since ||x|| = 1
        return noisy, exact, float(variances.max())

    def _gradients(self, derivatives: Floats) -> Floats:
        return np.asarray((derivatives[:, None] @ self.x)[:, 0] / self.x.shape[1])


@dataclass(frozen=True)
class State:
    """What a round begins with: the model, and who was selected how often, and when last."""

    w: Floats
    times_selected: Ints
    last_selected: Ints
    k: int = 0

    @classmethod
    def start(cls) -> State:
        """Before the first round, w = 0."""
        return cls(np.zeros(DIMENSIONS), np.zeros(CLIENTS, np.int64), np.full(CLIENTS, -1))

    def signals(self, problem: Problem) -> Signals:
        """Every client's exact loss and gradient."""
        return Signals(
            losses=problem.losses(self.w),
            updates=problem.gradients(self.w),
            times_selected=self.times_selected,
            last_selected=self.last_selected,
            round=self.k,
        )


@dataclass(frozen=True)
class Round:
    """What a round leaves."""

    cohort: Ints
    gradients: Floats  # (N, d) of all f_i where it began
    noisy: Floats  # (E, N, d) the stochastic gradients of every client along its own steps
    exact: Floats  # (E, N, d) the exact ones at the same models
    variance: float  # the largest of a stochastic gradient
    after: State


def play(problem: Problem, state: State, selector: Selector, size: int, eta: float, rng: np.random.Generator) -> Round:
    """One round: a cohort of this size is chosen, everybody trains, the cohort's models are averaged."""
    signals = state.signals(problem)
    cohort = np.arange(CLIENTS) if size == CLIENTS else selector.select(signals, size, rng=rng)
    models = np.tile(state.w, (CLIENTS, 1))
    noisy, exact = np.zeros((2, STEPS, CLIENTS, DIMENSIONS))
    variance = 0.0
    for step in range(STEPS):
        noisy[step], exact[step], largest = problem.noisy(models, rng)
        variance = max(variance, largest)
        models -= eta * noisy[step]
    times, last = state.times_selected.copy(), state.last_selected.copy()
    times[cohort] += 1
    last[cohort] = state.k
    after = State(models[cohort].mean(axis=0), times, last, state.k + 1)
    return Round(cohort, np.asarray(signals.updates), noisy, exact, variance, after)


def square(vectors: Floats) -> Floats:
    """The squared length of each."""
    return np.asarray((vectors * vectors).sum(axis=-1))


def derivative(r: Floats) -> Floats:
    """rho'(r)."""
    return np.asarray(r * np.exp(-(r**2) / 2))


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))
