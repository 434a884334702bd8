"""Theorem 1 as functions: the right side as it is printed, and as it can be proved (docs/theory.md derives it).

N clients of L-smooth losses, E local steps, K rounds, cohorts of m, noise of variance sigma2, f0 = f(w_0).

Each bound has a zeta of its own, which decides P(k). Under that P(k) its left side and its gamma (or delta) are means
over rounds. `zeta` belongs to `bound`, `zeta_least` to the bounds that are proved, and `zeta_doubled` to none of them.
`split_bound` and `cycle_bound` are Theorems 2 and 3 of docs/theory.md, which are not in the paper.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import integer, require

LEAST_ROUNDS = 9  # from here on eta L E <= 1/3, which every lemma of the proof asks for


def step_size(L: float, E: int, K: int) -> float:
    """The learning rate of the theorem: eta = 1 / (L E sqrt(K)).

    >>> step_size(L=2.0, E=5, K=100)
    0.01
    """
    _positive("L", L)
    return 1 / (L * integer("E", E, least=1) * math.sqrt(integer("K", K, least=1)))


def zeta(eta: float, L: float, E: int) -> float:
    """The growth of f in a round as printed: 9/4 (eta L E)^3. It belongs to `bound`.

    It has lost a factor 2 and gained a factor 3 on its way, so it is not too small.

    >>> round(zeta(step_size(1.0, 5, 9), 1.0, 5), 6)
    0.083333
    """
    return 9 / 4 * _reach(eta, L, E) ** 3


def zeta_doubled(eta: float, L: float, E: int) -> float:
    """The printed one with the factor 2 of ||grad f_i||^2 <= 2 L f_i, and the factor 3 too: 9/2 (eta L E)^3.

    It is what Lemma 2 yields as printed; no bound here is under its P(k).

    >>> zeta_doubled(0.1, 1.0, 2) / zeta(0.1, 1.0, 2)
    2.0
    """
    return 2 * zeta(eta, L, E)


def zeta_least(eta: float, L: float, E: int) -> float:
    """The smallest that the proof yields, with sum over tau < E of tau^2 <= E^3 / 3 as well: 3/2 (eta L E)^3.

    It belongs to `corrected_bound`, `separated_bound`, `split_bound` and `cycle_bound`.

    >>> round(zeta_least(step_size(1.0, 5, 9), 1.0, 5), 6)
    0.055556
    """
    return zeta_doubled(eta, L, E) / 3


def iterate_distribution(K: int, zeta: float) -> NDArray[np.float64]:
    """(K,) the distribution of the iterate that the theorem speaks of: P(k) proportional to (1 + zeta)^(K - 1 - k).

    >>> iterate_distribution(3, zeta=1.0).round(4).tolist()
    [0.5714, 0.2857, 0.1429]
    """
    rounds = integer("K", K, least=1)
    _not_negative("zeta", zeta)
    weights = np.exp(-math.log1p(zeta) * np.arange(rounds))  # divided by the first, which would overflow
    return np.asarray(weights / weights.sum(), np.float64)


def start_constant(K: int, zeta: float) -> float:
    """The factor of L f(w_0) / sqrt(K), without any estimate: 4 zeta K / (1 - (1 + zeta)^-K).

    >>> round(start_constant(9, zeta=1 / 18), 3)  # zeta_least at K = 9
    5.191
    """
    rounds = integer("K", K, least=1)
    require("zeta", zeta, 0 < zeta < math.inf, "above 0 and finite")
    return 4 * zeta * rounds / -math.expm1(-rounds * math.log1p(zeta))


def bound(*, K: int, L: float, E: int, N: int, f0: float, sigma2: float, gamma: float) -> float:
    """The right side of Theorem 1 as printed, under P(k) with `zeta`; the arguments are those of `corrected_bound`.

    12 L f0 / sqrt(K) + (2/(E N K) + 3/K + 4/(E N sqrt(K))) sigma2 + (4 + 4/sqrt(K)) gamma

    >>> bound(K=100, L=1.0, E=5, N=20, f0=0.5, sigma2=0.0, gamma=0.01)
    0.644
    """
    _check(K=K, L=L, E=E, clients=N, f0=f0, sigma2=sigma2, bias=gamma)
    root = math.sqrt(K)
    noise = 2 / (E * N * K) + 3 / K + 4 / (E * N * root)
    return 12 * L * f0 / root + noise * sigma2 + (4 + 4 / root) * gamma


def corrected_bound(*, K: int, L: float, E: int, N: int, f0: float, sigma2: float, gamma: float) -> float:
    """The right side with the constants that the corrected proof yields, under P(k) with `zeta_least`.

    6 L f0 / sqrt(K) + (9/(E N K) + 3/(2 K) + 4/(E N sqrt(K))) sigma2 + (4 + 4/sqrt(K)) gamma

    Args:
        K: rounds, 9 or more.
        L: smoothness of the loss of every example.
        E: local steps.
        N: clients.
        f0: f at the start.
        sigma2: largest variance of a client's stochastic gradient.
        gamma: expectation of ||b||^2, its mean over local steps and over rounds, these weighted by P(k) of the same
            zeta as the left side; or more.

    >>> corrected_bound(K=100, L=1.0, E=5, N=20, f0=0.5, sigma2=0.0, gamma=0.01)
    0.344
    """
    _check(K=K, L=L, E=E, clients=N, f0=f0, sigma2=sigma2, bias=gamma)
    root = math.sqrt(K)
    noise = 9 / (E * N * K) + 3 / (2 * K) + 4 / (E * N * root)
    return 6 * L * f0 / root + noise * sigma2 + (4 + 4 / root) * gamma


def separated_bound(*, K: int, L: float, E: int, m: int, f0: float, sigma2: float, delta: float) -> float:
    """The same where cohorts are chosen before batches are drawn: noise separated, so that it vanishes as K grows.

    It is under P(k) with `zeta_least`, too.

    6 L f0 / sqrt(K) + (6/(E m K) + 3/(2 K) + 2/(E m sqrt(K))) sigma2 + (4 + 4/sqrt(K)) delta

    Here delta is of d, the bias of the cohort's exact gradients, what gamma is of b.

    >>> separated_bound(K=100, L=1.0, E=5, m=5, f0=0.5, sigma2=0.0, delta=0.01)
    0.344
    """
    _check(K=K, L=L, E=E, clients=m, f0=f0, sigma2=sigma2, bias=delta)
    root = math.sqrt(K)
    noise = 6 / (E * m * K) + 3 / (2 * K) + 2 / (E * m * root)
    return 6 * L * f0 / root + noise * sigma2 + (4 + 4 / root) * delta


def split_bound(*, K: int, L: float, E: int, m: int, f0: float, sigma2: float, mu: float, delta: float) -> float:
    """Theorem 2: as `separated_bound`, but only mu stays as K grows, the part of delta that is no chance.

    6 L f0 / sqrt(K) + (6/(E m K) + 3/(2 K) + 2/(E m sqrt(K))) sigma2 + 4 mu + 4/sqrt(K) delta

    Here mu is of the mean of d, given all that was before the cohort was drawn, what delta is of d.

    >>> split_bound(K=100, L=1.0, E=5, m=5, f0=0.5, sigma2=0.0, mu=0.0, delta=0.01)
    0.304
    """
    _not_negative("mu", mu)
    start = separated_bound(K=K, L=L, E=E, m=m, f0=f0, sigma2=sigma2, delta=0.0)
    _not_negative("delta", delta)
    return start + 4 * mu + 4 / math.sqrt(K) * delta


def cycle_bound(
    *, K: int, C: int, L: float, E: int, m: int, f0: float, sigma2: float, mu: float, delta: float
) -> float:
    """Theorem 3: cycles of C rounds, whose errors may cancel; the learning rate is step_size(L, C E, K / C).

    6 L f0 sqrt(C / K) + 8/(C E m) sqrt(C / K) sigma2 + 4 mu + 8 sqrt(C / K) delta

    Its left side is of the models with which cycles begin, under P(k) of K / C with the `zeta_least` of C E steps.

    Args:
        K: rounds, C times a whole number of 9 or more.
        C: rounds in a cycle.
        L: as in `corrected_bound`, and so E, f0 and sigma2.
        E: local steps of a round.
        m: clients in a cohort.
        f0: f at the start.
        sigma2: largest variance of a client's stochastic gradient.
        mu: of the mean of the cycle's error, given all before the cycle, what delta is of the error.
        delta: expectation of ||error of a cycle||^2, its mean over cycles; `covering_error` bounds it.

    >>> cycle_bound(K=400, C=4, L=1.0, E=5, m=5, f0=0.5, sigma2=0.0, mu=0.0, delta=0.01)
    0.308
    """
    rounds, cycle = integer("K", K, least=LEAST_ROUNDS), integer("C", C, least=1)
    require("K", K, rounds % cycle == 0 and rounds >= LEAST_ROUNDS * cycle, f"C = {C} times 9 or more")
    _check(K=K, L=L, E=E, clients=m, f0=f0, sigma2=sigma2, bias=delta)
    _not_negative("mu", mu)
    root = math.sqrt(K / C)
    return 6 * L * f0 / root + 8 / (C * E * m * root) * sigma2 + 4 * mu + 8 / root * delta


def covering_error(*, K: int, C: int, G: float, sigma2: float) -> float:
    """The most that mu and delta of Theorem 3 can be where every client is selected once in each cycle.

    (G^2 + sigma2) C / K, with G the longest gradient of any f_i that is met.

    >>> covering_error(K=400, C=4, G=2.0, sigma2=1.0)
    0.05
    """
    _not_negative("G", G)
    _not_negative("sigma2", sigma2)
    return (G * G + sigma2) * integer("C", C, least=1) / integer("K", K, least=1)


def _reach(eta: float, L: float, E: int) -> float:
    _positive("eta", eta)
    _positive("L", L)
    return eta * L * integer("E", E, least=1)


def _check(*, K: int, L: float, E: int, clients: int, f0: float, sigma2: float, bias: float) -> None:
    integer("K", K, least=LEAST_ROUNDS)
    integer("E", E, least=1)
    integer("clients", clients, least=1)
    _positive("L", L)
    for name, value in {"f0": f0, "sigma2": sigma2, "bias": bias}.items():
        _not_negative(name, value)


def _positive(field: str, value: float) -> None:
    require(field, value, 0 < value < math.inf, "above 0 and finite")


def _not_negative(field: str, value: float) -> None:
    require(field, value, 0 <= value < math.inf, "0 or more and finite")
