"""Every server rule by plain loops over numbers, as its equation says: what the fast ones are held to."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from equifl.aggregators import Aggregator, Replies
from equifl.testing import random_replies

Steps: TypeAlias = list[list[float]]
Oracle: TypeAlias = Callable[[Sequence[Replies]], Steps]


def check(rule: Aggregator, oracle: Oracle, *, tolerance: float = 1e-5) -> None:
    """A rule over twelve rounds of several federations against its oracle."""
    for seed, n, d in ((0, 1, 3), (1, 4, 1), (2, 10, 6), (3, 8, 2)):
        rounds = random_replies(12, n=n, d=d, seed=seed, cohort=1 if n == 1 else None)
        memory: Any = None
        for replies, expected in zip(rounds, oracle(rounds), strict=True):
            step, memory = rule.step(replies, memory)
            np.testing.assert_allclose(step, expected, rtol=tolerance, atol=tolerance)


def combined(weights: Sequence[float], rows: Any) -> list[float]:
    """Sum of weights_i rows_i, number by number."""
    found = []
    for place in range(len(rows[0])):
        total = 0.0
        for weight, row in zip(weights, rows, strict=True):
            total += float(weight) * float(row[place])
        found.append(total)
    return found


def mean(rounds: Sequence[Replies]) -> Steps:
    return [combined([1 / len(r.clients)] * len(r.clients), r.updates) for r in rounds]


def by_size(rounds: Sequence[Replies]) -> Steps:
    return [combined([size / sum(r.sizes) for size in r.sizes], r.updates) for r in rounds]


def by_loss(q: float) -> Oracle:
    def steps(rounds: Sequence[Replies]) -> Steps:
        return [combined([f**q / sum(g**q for g in r.losses) for f in r.losses], r.updates) for r in rounds]

    return steps


def by_selector(rounds: Sequence[Replies]) -> Steps:
    found = []
    for r in rounds:
        assert r.weights is not None
        found.append(combined([weight / r.n for weight in r.weights], r.updates))
    return found


def momentum(beta: float, inner: Oracle) -> Oracle:
    """The sum over all earlier rounds of beta^age times the inner step, which is what the recursion says."""

    def steps(rounds: Sequence[Replies]) -> Steps:
        of_inner = inner(rounds)
        return [
            combined([beta ** (last - age) for age in range(last + 1)], of_inner[: last + 1])
            for last in range(len(rounds))
        ]

    return steps


def q_fedavg(q: float, lipschitz: float) -> Oracle:
    def steps(rounds: Sequence[Replies]) -> Steps:
        found = []
        for r in rounds:
            deltas, h = [], 0.0
            for update, loss in zip(r.updates, r.losses, strict=True):
                gradient = [lipschitz * float(x) for x in update]
                deltas.append([loss**q * g for g in gradient])
                h += q * loss ** (q - 1) * sum(g**2 for g in gradient) + lipschitz * loss**q
            found.append(combined([1 / h] * len(deltas), deltas))
        return found

    return steps


def memory(q: float) -> Oracle:
    def steps(rounds: Sequence[Replies]) -> Steps:
        n, d = rounds[0].n, rounds[0].updates.shape[1]
        y = [[0.0] * d for _ in range(n)]
        losses: dict[int, float] = {}
        found = []
        for r in rounds:
            replied = dict(zip(r.clients.tolist(), r.updates.astype(float).tolist(), strict=True))
            losses |= dict(zip(r.clients.tolist(), r.losses.tolist(), strict=True))
            unknown = sum(losses.values()) / len(losses)
            powers = [losses.get(i, unknown) ** q for i in range(n)]
            p = [power / sum(powers) for power in powers]
            step = []
            for place in range(d):
                of_all = sum(p[i] * y[i][place] for i in range(n))
                change = sum(p[i] * (u[place] - y[i][place]) for i, u in replied.items())
                step.append(n / len(replied) * change + of_all)
            for i, u in replied.items():
                y[i] = u
            found.append(step)
        return found

    return steps
