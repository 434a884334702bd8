"""Both sides of Theorem 1, measured: a non-convex problem whose L is known, SubTrunc's cohorts, exact gradients.

    python benchmarks/convergence.py [--out results/theory.json] [--figure docs/figures/theory.svg]  # 2 minutes
    python benchmarks/convergence.py --quick  # 4 seconds, writes nothing

Client i has examples (x, y) with ||x|| = 1 and y = x^T v_i + noise; its v_i is its own. The loss of an example is
Welsch's, l(w) = rho(r) with r = x^T w - y and rho(r) = 1 - exp(-r^2 / 2): between 0 and 1, and not convex.
    rho'(r)  = r exp(-r^2 / 2)
    rho''(r) = (1 - r^2) exp(-r^2 / 2), from -2 exp(-3/2) = -0.446 at r^2 = 3 to 1 at r = 0
The Hessian of l is rho''(r) x x^T, of norm |rho''(r)| ||x||^2 <= 1. So every example's loss is L-smooth with L = 1,
and so are all f_i and f. At the start, w = 0, the Hessian of f has a negative eigenvalue. A batch is drawn with
replacement, so its gradient has the variance of one example's over the batch size, which is computed from all
examples wherever a client stands.

Every round the selector sees every client's exact loss and gradient at w_k, before batches are drawn. All clients
run E local steps, since the bias b is the cohort's mean step less everybody's; only the cohort's are averaged.
Left side: sum over k of P(k) ||grad f(w_k)||^2, the mean over seeds. Beside SubTrunc everybody trains once, for b = 0.
P(k) is that of each bound: of `zeta` for the printed one, of `zeta_least` for the two that are proved.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from drawing import COLOURS, Axis, Panel, picture
from numpy.typing import NDArray

from equifl import Signals, SubTrunc
from equifl.paper import theory

Floats = NDArray[np.float64]
ROOT = Path(__file__).resolve().parent.parent

L = 1.0
CLIENTS, COHORT, EXAMPLES, DIMENSIONS = 20, 5, 30, 3
STEPS, BATCH = 5, 4
LENGTH, SPREAD = 1.5, 0.4  # of the clients' mean v, and of their own v_i around it in each dimension
SELECTOR = SubTrunc(lam=0.5, b=1.1)
LATE = 100  # slopes are fitted from this K on: by then the model has come from its start to where it stays


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
class Run:
    """What one run of K rounds leaves: (K,) squared norms, and the largest variance met."""

    gradient: Floats  # ||grad f(w_k)||^2
    bias: Floats  # mean over local steps of ||b||^2
    bias_max: float  # the largest ||b||^2 of any local step
    exact_bias: Floats  # the same mean of ||d||^2, without the noise
    variance: float


@dataclass(frozen=True)
class Row:
    """Both sides for one K, over seeds."""

    cohort: int
    K: int
    left: float  # under P(k) of `zeta_least`, as gamma_mean and delta_mean
    left_least: float  # over seeds
    left_most: float
    left_printed: float  # under P(k) of the printed `zeta`, as gamma_printed
    f0: float
    sigma2: float
    gamma_mean: float
    gamma_printed: float
    gamma_max: float
    delta_mean: float
    printed: float
    printed_gamma_max: float
    corrected: float
    separated: float


def derivative(r: Floats) -> Floats:
    """rho'(r)."""
    return np.asarray(r * np.exp(-(r**2) / 2))


def train(problem: Problem, K: int, cohort: int, rng: np.random.Generator) -> Run:
    """K rounds from w = 0 with the step size of the theorem."""
    eta = theory.step_size(L, STEPS, K)
    w = np.zeros(problem.x.shape[2])
    gradient, bias, exact_bias = np.zeros(K), np.zeros((K, STEPS)), np.zeros((K, STEPS))
    variance = 0.0
    for k in range(K):
        at_start = problem.gradients(w)
        gradient[k] = _square(at_start.mean(axis=0))
        chosen = choose(problem, w, at_start, cohort, k, rng)
        models = np.tile(w, (CLIENTS, 1))
        for step in range(STEPS):
            noisy, exact, largest = problem.noisy(models, rng)
            bias[k, step] = _square(noisy[chosen].mean(axis=0) - noisy.mean(axis=0))
            exact_bias[k, step] = _square(exact[chosen].mean(axis=0) - exact.mean(axis=0))
            variance = max(variance, largest)
            models -= eta * noisy
        w = models[chosen].mean(axis=0)
    return Run(gradient, bias.mean(axis=1), float(bias.max()), exact_bias.mean(axis=1), variance)


def choose(problem: Problem, w: Floats, gradients: Floats, cohort: int, k: int, rng: np.random.Generator) -> Any:
    """The cohort of round k."""
    if cohort == CLIENTS:
        return np.arange(CLIENTS)
    return SELECTOR.select(Signals(losses=problem.losses(w), updates=gradients, round=k), cohort, rng=rng)


def measure(problem: Problem, K: int, cohort: int, seeds: int) -> Row:
    """Both sides, from as many runs as there are seeds; the problem stays the same."""
    runs = [train(problem, K, cohort, np.random.default_rng([seed, K, cohort])) for seed in range(seeds)]
    eta = theory.step_size(L, STEPS, K)
    P = theory.iterate_distribution(K, theory.zeta_least(eta, L, STEPS))
    P_printed = theory.iterate_distribution(K, theory.zeta(eta, L, STEPS))
    lefts = [float(P @ run.gradient) for run in runs]
    f0 = float(problem.losses(np.zeros(DIMENSIONS)).mean())
    sigma2 = max(run.variance for run in runs)
    gamma, gamma_printed = (float(np.mean([weights @ run.bias for run in runs])) for weights in (P, P_printed))
    gamma_max = max(run.bias_max for run in runs)
    delta = float(np.mean([P @ run.exact_bias for run in runs]))
    given: dict[str, Any] = {"K": K, "L": L, "E": STEPS, "f0": f0, "sigma2": sigma2}
    return Row(
        cohort=cohort,
        K=K,
        left=float(np.mean(lefts)),
        left_least=min(lefts),
        left_most=max(lefts),
        left_printed=float(np.mean([P_printed @ run.gradient for run in runs])),
        f0=f0,
        sigma2=sigma2,
        gamma_mean=gamma,
        gamma_printed=gamma_printed,
        gamma_max=gamma_max,
        delta_mean=delta,
        printed=theory.bound(**given, N=CLIENTS, gamma=gamma_printed),
        printed_gamma_max=theory.bound(**given, N=CLIENTS, gamma=gamma_max),
        corrected=theory.corrected_bound(**given, N=CLIENTS, gamma=gamma),
        separated=theory.separated_bound(**given, m=cohort, delta=delta),
    )


def experiment(rounds: list[int], seeds: int) -> list[Row]:
    """Every K, for SubTrunc's cohorts and for everybody."""
    problem = Problem.draw(np.random.default_rng(0))
    return [measure(problem, K, cohort, seeds) for cohort in (COHORT, CLIENTS) for K in rounds]


def slopes(rows: list[Row]) -> dict[str, float]:
    """The slope of each side in log K by least squares, once the start is over; and what the left side tends to.

    The last is the constant of the left side fitted by constant + factor / sqrt(K).
    """
    late = [row for row in rows if row.K >= LATE]
    log_K = np.log([row.K for row in late])
    fits = {side: np.polyfit(log_K, np.log([getattr(row, side) for row in late]), 1)[0] for side in SIDES}
    floor = np.polyfit(np.exp(-log_K / 2), [row.left for row in late], 1)[1]
    return {side: round(float(value), 3) for side, value in fits.items()} | {"left_floor": round(float(floor), 5)}


def log_spaced(least: int, most: int, count: int) -> list[int]:
    return [round(value) for value in np.geomspace(least, most, count)]


def table(rows: list[Row]) -> str:
    """What is printed."""
    lines = ["cohort      K    left side   separated   corrected     printed   gamma mean  gamma max   delta mean"]
    for r in rows:
        sides = "  ".join(f"{value:10.5f}" for value in (r.left, r.separated, r.corrected, r.printed))
        lines.append(
            f"{r.cohort:6d}  {r.K:5d}   {sides}   {r.gamma_mean:10.5f} {r.gamma_max:10.5f}   {r.delta_mean:10.5f}"
        )
    return "\n".join(lines)


SIDES = {
    "left": "left side, measured",
    "separated": "right side, noise apart",
    "corrected": "right side, corrected",
    "printed": "right side, as printed",
}
LEGEND = list(zip([*SIDES.values(), "dashed: 1/sqrt(K)"], COLOURS, strict=False))


def figure(rows: list[Row]) -> str:
    """Both sides against K, and 1/sqrt(K) through the last point of the left side where everybody trains."""
    values = [getattr(row, side) for row in rows for side in SIDES]
    sides = Axis.powers(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))
    most = max(row.K for row in rows)
    rounds = Axis(
        min(row.K for row in rows), most, {float(10**p): f"{10**p:,}" for p in range(1, 5)}, logarithmic=True
    )
    panels = []
    for left, cohort in ((60, COHORT), (440, CLIENTS)):
        who = f"SubTrunc, {cohort} of {CLIENTS} clients" if cohort < CLIENTS else f"all {CLIENTS} clients, no bias"
        panels.append(Panel(left, f"{who}; against K, rounds", rounds, sides))
        ours = [row for row in rows if row.cohort == cohort]
        falling = {float(K): rows[-1].left * math.sqrt(rows[-1].K / K) for K in (ours[0].K, most)}
        panels[-1].line(falling, LEGEND[-1][1], dashed=True)
        for side, (_, colour) in zip(SIDES, LEGEND, strict=False):
            panels[-1].line({float(row.K): getattr(row, side) for row in ours}, colour)
    return picture(panels, LEGEND, "Both sides of Theorem 1 against the number of rounds")


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _square(vector: Floats) -> float:
    return float(vector @ vector)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure both sides of Theorem 1.")
    parser.add_argument("--quick", action="store_true", help="four K up to 500, two seeds; writes nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "theory.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "figures" / "theory.svg")
    given = parser.parse_args()
    rounds, seeds = (log_spaced(9, 500, 4), 2) if given.quick else (log_spaced(9, 10_000, 8), 3)
    start = time.perf_counter()
    rows = experiment(rounds, seeds)
    print(table(rows))
    fits = {cohort: slopes([row for row in rows if row.cohort == cohort]) for cohort in (COHORT, CLIENTS)}
    for cohort, fit in fits.items():
        print(f"cohort {cohort}, slopes in log K from K = {LATE}: " + ", ".join(f"{s} {v}" for s, v in fit.items()))
    print(f"{time.perf_counter() - start:.0f} s")
    if given.quick:
        return
    setting = {
        "L": L,
        "clients": CLIENTS,
        "steps": STEPS,
        "batch": BATCH,
        "length": LENGTH,
        "spread": SPREAD,
        "seeds": seeds,
    }
    content = {"setting": setting, "slopes": fits, "rows": [_short(asdict(row)) for row in rows]}
    for path, text in ((given.out, json.dumps(content, indent=1) + "\n"), (given.figure, figure(rows))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    main()
