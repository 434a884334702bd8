"""Both sides of Theorem 1, measured on `nonconvex`: SubTrunc's cohorts, exact gradients; then `cohort_error`.

    python benchmarks/convergence.py [--out results/theory.json] [--figures docs/figures]  # minutes
    python benchmarks/convergence.py --quick  # seconds, writes nothing

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

import cohort_error
import numpy as np
from drawing import COLOURS, Axis, Panel, picture
from nonconvex import (
    BATCH,
    CLIENTS,
    COHORT,
    DIMENSIONS,
    LENGTH,
    SPREAD,
    STEPS,
    Floats,
    L,
    Problem,
    State,
    play,
    square,
)

from equifl import SubTrunc
from equifl.paper import theory

ROOT = Path(__file__).resolve().parent.parent

SELECTOR = SubTrunc(lam=0.5, b=1.1)
LATE = 100  # slopes are fitted from this K on: by then the model has come from its start to where it stays


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


def train(problem: Problem, K: int, cohort: int, rng: np.random.Generator) -> Run:
    """K rounds from w = 0 with the step size of the theorem."""
    eta = theory.step_size(L, STEPS, K)
    state = State.start()
    gradient, bias, exact_bias = np.zeros(K), np.zeros((K, STEPS)), np.zeros((K, STEPS))
    variance = 0.0
    for k in range(K):
        played = play(problem, state, SELECTOR, cohort, eta, rng)
        gradient[k] = square(played.gradients.mean(axis=0))
        bias[k] = square(played.noisy[:, played.cohort].mean(axis=1) - played.noisy.mean(axis=1))
        exact_bias[k] = square(played.exact[:, played.cohort].mean(axis=1) - played.exact.mean(axis=1))
        variance = max(variance, played.variance)
        state = played.after
    return Run(gradient, bias.mean(axis=1), float(bias.max()), exact_bias.mean(axis=1), variance)


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure both sides of Theorem 1, and the error of cohorts.")
    parser.add_argument("--quick", action="store_true", help="few K up to 500, two seeds; writes nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "theory.json")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures", help="the folder")
    given = parser.parse_args()
    rounds, seeds = (log_spaced(9, 500, 4), 2) if given.quick else (log_spaced(9, 10_000, 8), 3)
    start = time.perf_counter()
    rows = experiment(rounds, seeds)
    print(table(rows))
    fits = {cohort: slopes([row for row in rows if row.cohort == cohort]) for cohort in (COHORT, CLIENTS)}
    for cohort, fit in fits.items():
        print(f"cohort {cohort}, slopes in log K from K = {LATE}: " + ", ".join(f"{s} {v}" for s, v in fit.items()))
    print(f"{time.perf_counter() - start:.0f} s")
    selectors = cohort_error.experiment(*((144, 400), 2) if given.quick else (cohort_error.ROUNDS, seeds))
    print(cohort_error.table(selectors))
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
    content = {
        "setting": setting,
        "slopes": fits,
        "rows": [_short(asdict(row)) for row in rows],
        "selectors": {name: _short(asdict(row)) for name, row in selectors.items()},
    }
    files = {
        given.out: json.dumps(content, indent=1) + "\n",
        given.figures / "theory.svg": figure(rows),
        given.figures / "cohort-error.svg": cohort_error.figure(selectors),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    main()
