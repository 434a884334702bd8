"""What the error of a selector's cohorts is made of: its mean given the past, and chance; of a round and of a cycle.

The error of a round is d: the mean exact gradient of the cohort less that of everybody. Given all that was before the
cohort was drawn, it has a mean and varies around it. To tell them apart, cohorts are drawn anew from the state of a
round, with its gradients. A cycle has C = N / m rounds. Its error is the mean exact gradient of its cohorts, where
they stand, less that of all clients, each of which goes as many exact steps from where the cycle begins. To split it,
the cycle is played anew. What share of the squared error is that of its mean is found in some rounds and cycles, the
error itself in all. Both are of the same runs, with the step size of Theorem 2 for K rounds: it is that of Theorem 3
for K / C rounds, so the first K / C^2 cycles are a run of that.
`convergence.py` runs this, and writes what it finds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from drawing import COLOURS, Axis, Panel, picture
from nonconvex import CLIENTS, COHORT, STEPS, Floats, Ints, L, Problem, Round, State, play, square

from equifl.paper import theory
from equifl.selectors import Balanced, DivFL, PowerOfChoice, Reshuffle, Rota, Selector, SubTrunc, Uniform, UnionFL

SELECTORS: Mapping[str, Selector] = {
    "Random": Uniform(),
    "Reshuffle": Reshuffle(),
    "Balanced": Balanced(),
    "Rota": Rota(),
    "PowerOfChoice": PowerOfChoice(),
    "DivFL": DivFL(),
    "SubTrunc": SubTrunc(lam=0.5, b=1.1),
    "UnionFL": UnionFL(mu_factor=3.0),
}
CYCLE = CLIENTS // COHORT
ROUNDS = (144, 400, 1024, 4096, 10_000)  # from the first 9 cycles are a quarter of its rounds
CYCLES, DRAWS = 25, 100  # so many cycles of the longest run are looked at: the cohorts of each round, drawn so often
STARTS, REPLAYS = 12, 60  # and so many are played so often


@dataclass(frozen=True)
class Split:
    """What a selector's error is made of, at the largest K; means over seeds."""

    K: int
    left: float  # of Theorem 2
    left_most: float  # over seeds
    gamma: float  # of stochastic gradients
    delta: float  # of exact ones
    mu: float  # of the mean of those, given the past
    separated: float
    split: float
    cycle_left: float  # of Theorem 3
    cycle_left_most: float
    cycle_delta: float
    cycle_mu: float
    cycle_bound: float
    floor: float  # what the left side of Theorem 2 tends to, fitted by constant + factor / sqrt(K)
    floor_error: float  # its standard error, from one fit a seed

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of gamma: the batches' noise, chance in the choice of cohorts, and what is left of both on average."""
        return 1 - self.delta / self.gamma, (self.delta - self.mu) / self.gamma, self.mu / self.gamma


@dataclass(frozen=True)
class Run:
    """What one run of K rounds leaves."""

    gradient: Floats  # (K,) ||grad f(w_k)||^2
    bias: Floats  # (K,) mean over local steps of ||b||^2, of stochastic gradients
    error: Floats  # (K,) the same of ||d||^2, of exact ones
    cycle_error: Floats  # (K / C,) the same of cycles
    starts: list[State]  # of each cycle
    variance: float  # the largest of a stochastic gradient


def train(problem: Problem, selector: Selector, K: int, rng: np.random.Generator) -> Run:
    """K rounds from w = 0 with the step size of Theorem 2, which is that of Theorem 3 for the first K / C."""
    eta = theory.step_size(L, STEPS, K)
    starts, variance = [State.start()], 0.0
    gradient, bias, error, cycle_error = [], [], [], []
    for _ in range(K // CYCLE):
        rounds, found = play_cycle(problem, starts[-1], selector, eta, rng)
        gradient += [square(played.gradients.mean(axis=0)) for played in rounds]
        bias += [square(error_of(played.noisy, played.cohort)).mean() for played in rounds]
        error += [square(error_of(played.exact, played.cohort)).mean() for played in rounds]
        cycle_error.append(square(found))
        variance = max(variance, *(played.variance for played in rounds))
        starts.append(rounds[-1].after)
    return Run(np.array(gradient), np.array(bias), np.array(error), np.array(cycle_error), starts, variance)


def error_of(gradients: Floats, cohort: Ints) -> Floats:
    """(E, d) the cohort's mean gradient less everybody's in each local step."""
    return np.asarray(gradients[:, cohort].mean(axis=1) - gradients.mean(axis=1))


def play_cycle(
    problem: Problem, state: State, selector: Selector, eta: float, rng: np.random.Generator
) -> tuple[list[Round], Floats]:
    """The rounds of a cycle, and the error of their mean."""
    rounds: list[Round] = []
    for _ in range(CYCLE):
        rounds.append(play(problem, rounds[-1].after if rounds else state, selector, COHORT, eta, rng))
    taken = np.mean([played.exact[:, played.cohort].mean(axis=(0, 1)) for played in rounds], axis=0)
    return rounds, taken - everybody(problem, state.w, eta)


def everybody(problem: Problem, w: Floats, eta: float) -> Floats:
    """The mean gradient of all clients over as many exact steps as a cycle has, each going its own way from w."""
    models, total = np.tile(w, (CLIENTS, 1)), np.zeros_like(w)
    for _ in range(CYCLE * STEPS):
        gradients = problem.gradients(models)
        total += gradients.mean(axis=0)
        models -= eta * gradients
    return total / (CYCLE * STEPS)


def drawn_anew(problem: Problem, selector: Selector, start: State, eta: float, rng: np.random.Generator) -> Floats:
    """(C, 2) ||mean of d||^2 and the variance of d in each round of a cycle: cohorts vary, batches do not.

    With batches held the mean is the longer one, if anything (Jensen's inequality).
    """
    found, state = np.zeros((CYCLE, 2)), start
    for at in range(CYCLE):
        signals = state.signals(problem)
        weights = np.full((DRAWS, CLIENTS), -1 / CLIENTS)
        for row in weights:
            row[selector.select(signals, COHORT, rng=rng)] += 1 / COHORT
        played = play(problem, state, selector, COHORT, eta, rng)
        found[at] = np.mean([parts(weights @ exact) for exact in played.exact], axis=0)
        state = played.after
    return found


def replayed(problem: Problem, selector: Selector, start: State, eta: float, rng: np.random.Generator) -> Floats:
    """(2,) the same of the error of a whole cycle, which is played again and again."""
    return np.array(parts(np.array([play_cycle(problem, start, selector, eta, rng)[1] for _ in range(REPLAYS)])))


def parts(errors: Floats) -> tuple[float, float]:
    """The squared length of the mean of what these are samples of, and their variance; both without bias.

    >>> parts(np.array([[1.0], [3.0]]))
    (3.0, 2.0)
    """
    variance = float(errors.var(axis=0, ddof=1).sum())
    return float(square(errors.mean(axis=0))) - variance / len(errors), variance


def measure(problem: Problem, name: str, rounds: Sequence[int], seeds: int) -> Split:
    """Runs of each K for the fit; the errors are those of the largest, which is the last."""
    selector, lefts = SELECTORS[name], []
    for K in rounds:
        runs = [train(problem, selector, K, np.random.default_rng([seed, K])) for seed in range(seeds)]
        eta = theory.step_size(L, STEPS, K)
        P = theory.iterate_distribution(K, theory.zeta_least(eta, L, STEPS))
        lefts.append([float(P @ run.gradient) for run in runs])
    floors = np.polyfit(np.sqrt(1 / np.array(rounds)), np.array(lefts), 1)[1]
    cycles = K // CYCLE**2
    P_cycles = theory.iterate_distribution(cycles, theory.zeta_least(eta, L, CYCLE * STEPS))
    cycle_lefts = [float(P_cycles @ run.gradient[: CYCLE * cycles : CYCLE]) for run in runs]

    draws = np.random.default_rng(K)
    begun = [run.starts[at] for run in runs for at in spread(K // CYCLE, CYCLES)]
    kept = share(np.mean([drawn_anew(problem, selector, state, eta, draws) for state in begun], axis=(0, 1)))
    again = [run.starts[at] for run in runs for at in spread(cycles, STARTS)]
    cycle_kept = share(np.mean([replayed(problem, selector, state, eta, draws) for state in again], axis=0))
    delta = float(np.mean([P @ run.error for run in runs]))
    cycle_delta = float(np.mean([P_cycles @ run.cycle_error[:cycles] for run in runs]))
    f0, sigma2 = float(problem.losses(State.start().w).mean()), max(run.variance for run in runs)
    given: dict[str, Any] = {"L": L, "E": STEPS, "m": COHORT, "f0": f0, "sigma2": sigma2}
    return Split(
        K=K,
        left=float(np.mean(lefts[-1])),
        left_most=max(lefts[-1]),
        gamma=float(np.mean([P @ run.bias for run in runs])),
        delta=delta,
        mu=kept * delta,
        separated=theory.separated_bound(K=K, delta=delta, **given),
        split=theory.split_bound(K=K, mu=kept * delta, delta=delta, **given),
        cycle_left=float(np.mean(cycle_lefts)),
        cycle_left_most=max(cycle_lefts),
        cycle_delta=cycle_delta,
        cycle_mu=cycle_kept * cycle_delta,
        cycle_bound=theory.cycle_bound(K=K // CYCLE, C=CYCLE, mu=cycle_kept * cycle_delta, delta=cycle_delta, **given),
        floor=float(floors.mean()),
        floor_error=float(floors.std(ddof=1) / math.sqrt(seeds)),
    )


def share(found: Floats) -> float:
    """Of the squared length of a mean in the sum of it and a variance; 0 where the estimate of the former is below."""
    return max(0.0, float(found[0] / found.sum()))


def spread(count: int, most: int) -> list[int]:
    """Positions below `count`, evenly spread, `most` of them if there are so many."""
    return sorted({round(at) for at in np.linspace(0, count - 1, most)})


def experiment(rounds: Sequence[int], seeds: int) -> dict[str, Split]:
    """Every selector; `rounds` rise, and are squares of multiples of the cycle."""
    problem = Problem.draw(np.random.default_rng(0))
    return {name: measure(problem, name, rounds, seeds) for name in SELECTORS}


def table(rows: Mapping[str, Split]) -> str:
    """The table of docs/theory.md."""
    lines = [
        "| selector | `gamma` | noise | chance | mean | `delta_C` | `4 delta` | `4 mu` | `4 mu_C` | tends to |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        shares = " | ".join(f"{share:.0%}" for share in row.shares)
        floors = " | ".join(f"{4 * value:.4f}" for value in (row.delta, row.mu, row.cycle_mu))
        seen = f"{round(row.floor, 4) + 0.0:.4f} ± {row.floor_error:.4f}"  # never "-0.0000"
        lines.append(f"| {name} | {row.gamma:.4f} | {shares} | {row.cycle_delta:.1e} | {floors} | {seen} |")
    return "\n".join(lines)


def figure(rows: Mapping[str, Split]) -> str:
    """The squared error of a round and of a cycle, what of it stays, and what the left side tends to."""
    names = Axis(0, len(rows) + 1, {len(rows) - at: name for at, name in enumerate(rows)})
    lengths = Axis.powers(-6, -1)
    labels = ("squared error", "that of its mean given the past", "the left side tends to")
    legend = list(zip(labels, (COLOURS[0], COLOURS[2], COLOURS[3]), strict=True))
    panels = []
    for left, title, shown in (
        (120, "Errors of rounds", ("delta", "mu", "floor")),
        (560, f"Errors of cycles of {CYCLE} rounds", ("cycle_delta", "cycle_mu", "floor")),
    ):
        panels.append(Panel(left, title, lengths, names))
        for value, (_, colour), shift in zip(shown, legend, (0.2, 0.0, -0.2), strict=True):
            for at, row in enumerate(rows.values()):
                panels[-1].line({max(lengths.low, getattr(row, value)): len(rows) - at + shift}, colour)
    return picture(panels, legend, "The error of cohorts by selector, and what the gradient tends to")
