"""What the error of cohorts is made of: the measurement, held to cases with known answers, and its results."""

import importlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.paper import theory
from equifl.selectors import Balanced, DivFL, Reshuffle, Rota, Uniform

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "theory.json"


@pytest.fixture(scope="module")
def scripts() -> Any:
    """The module of the measurement, which is a script and not part of the package."""
    if not (ROOT / "benchmarks").exists():
        pytest.skip("benchmarks/ is not part of the source distribution")
    sys.path.append(str(ROOT / "benchmarks"))
    return importlib.import_module("cohort_error")


def test_squared_mean_and_variance_are_estimated_without_bias(scripts: Any) -> None:
    rng = np.random.default_rng(0)
    found = [scripts.parts(rng.normal([3.0, 4.0], [1.0, 2.0], size=(5, 2))) for _ in range(20_000)]
    assert np.mean(found, axis=0) == pytest.approx([25.0, 5.0], abs=0.2)


@pytest.mark.parametrize("place", range(4))
def test_reshuffle_drawn_anew_errs_as_its_formula_says(scripts: Any, place: int) -> None:
    """Before cohort j of a cycle N - j m clients are left: mean (1/(N - j m) - 1/N) S^2, in all (1/m - 1/N) S^2."""
    problem = scripts.Problem.draw(np.random.default_rng(0))
    N, m = scripts.CLIENTS, scripts.COHORT
    gradients = problem.gradients(np.zeros(3))
    S2 = gradients.var(axis=0, ddof=1).sum()
    left = N - place * m
    rng = np.random.default_rng(place)
    means = [gradients[rng.permutation(N)[:left]].mean(axis=0) - gradients.mean(axis=0) for _ in range(20_000)]
    assert scripts.square(np.array(means)).mean() == pytest.approx((1 / left - 1 / N) * S2, rel=0.03, abs=1e-12)


def test_chance_is_all_of_what_random_errs_and_nothing_of_what_divfl_does(scripts: Any) -> None:
    problem = scripts.Problem.draw(np.random.default_rng(0))
    start, rng = scripts.State.start(), np.random.default_rng(1)
    S2 = problem.gradients(start.w).var(axis=0, ddof=1).sum()
    random, balanced, divfl = (
        np.mean([scripts.drawn_anew(problem, selector, start, 1e-6, rng) for _ in range(2)], axis=(0, 1))
        for selector in (Uniform(), Balanced(), DivFL())
    )
    assert random[1] == pytest.approx((1 / 5 - 1 / 20) * S2, rel=0.1)
    assert abs(random[0]) < 0.02 * random[1]
    assert balanced[1] < 0.2 * random[1]
    assert abs(balanced[0]) < 0.1 * balanced[1]
    assert divfl[1] == pytest.approx(0, abs=1e-20)
    assert divfl[0] > 0.1 * random[1]


@pytest.mark.parametrize("selector", [Reshuffle(), Rota()])
def test_who_rotates_errs_in_rounds_and_not_in_cycles(scripts: Any, selector: Any) -> None:
    """The last cohort of a cycle is determined, so it has no variance; over the cycle only drift is left."""
    problem = scripts.Problem.draw(np.random.default_rng(0))
    rng, eta = np.random.default_rng(2), 1e-4
    drawn = scripts.drawn_anew(problem, selector, scripts.State.start(), eta, rng)
    assert drawn[-1][1] == pytest.approx(0, abs=1e-20)
    assert drawn[-1][0] > 1e-5
    _, error = scripts.play_cycle(problem, scripts.State.start(), selector, eta, rng)
    G2, sigma2, reach = np.exp(-1), 0.05, eta * scripts.L * scripts.CYCLE * scripts.STEPS
    assert scripts.square(error) <= reach**2 * (G2 + sigma2)
    assert scripts.square(error) < 1e-3 * drawn[-1][0]


def test_the_first_cycles_of_a_run_have_the_step_size_of_their_theorem(scripts: Any) -> None:
    for K in scripts.ROUNDS:
        cycles, rest = divmod(K, scripts.CYCLE**2)
        assert (rest, cycles >= 9) == (0, True)
        of_cycles = theory.step_size(scripts.L, scripts.CYCLE * scripts.STEPS, cycles)
        assert of_cycles == pytest.approx(theory.step_size(scripts.L, scripts.STEPS, K), rel=1e-12)


def test_both_theorems_hold_where_they_are_measured(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("CYCLES", 3), ("DRAWS", 10), ("STARTS", 2), ("REPLAYS", 5)):
        monkeypatch.setattr(scripts, name, few)
    problem = scripts.Problem.draw(np.random.default_rng(0))
    rows = {name: scripts.measure(problem, name, (64, 144), seeds=2) for name in ("Random", "Reshuffle", "SubTrunc")}
    for row in rows.values():
        assert 0 < row.left_most < row.split <= row.separated
        assert 0 < row.cycle_left_most < row.cycle_bound
    assert rows["Reshuffle"].cycle_delta < 0.01 * rows["Random"].cycle_delta < rows["SubTrunc"].cycle_delta
    assert scripts.figure(rows).startswith("<svg")


def quadratic(
    K: int, orders: Sequence[tuple[int, ...]], targets: np.ndarray[Any, Any], *, E: int = 2
) -> tuple[float, float, float, float]:
    """f_i = (w - c_i)^2 / 2 without noise from w = 0, one client a round, each cycle in one of these orders by chance.

    Exactly, over all orders: the left side of Theorem 3 for K cycles, f(w_0), mu_C and delta_C.
    """
    C = len(orders[0])
    eta = theory.step_size(1.0, C * E, K)
    P = theory.iterate_distribution(K, theory.zeta_least(eta, 1.0, C * E))
    shrink = (1 - eta) ** E
    # A cycle takes w to shrink^C w + a, where a depends on the order alone; the sum of its steps is (w - w') / eta.
    ends = np.array([sum((1 - shrink) * shrink ** (C - 1 - j) * targets[i] for j, i in enumerate(o)) for o in orders])
    alone = (1 - (1 - eta) ** (C * E)) * targets.mean()  # everybody, C E steps from w: w to shrink^C w + alone
    errors = (alone - ends) / (eta * C * E)
    mean, square, left = 0.0, 0.0, 0.0
    for weight in P:
        left += weight * (square - 2 * mean * targets.mean() + targets.mean() ** 2)
        mean, square = (
            shrink**C * mean + ends.mean(),
            shrink ** (2 * C) * square + 2 * shrink**C * mean * ends.mean() + (ends**2).mean(),
        )
    return left, float((targets**2).mean() / 2), float(errors.mean() ** 2), float((errors**2).mean())


TARGETS = np.array([-1.0, 0.5, 2.0])


@pytest.mark.parametrize("K", [9, 100, 3000])
@pytest.mark.parametrize(
    "orders",
    [list(itertools.permutations(range(3))), list(itertools.product(range(3), repeat=3)), [(0, 1, 2)], [(2, 2, 2)]],
    ids=["reshuffled", "random", "in order", "always the same"],
)
def test_theorem_3_holds_exactly_over_all_orders(K: int, orders: Sequence[tuple[int, ...]]) -> None:
    left, f0, mu, delta = quadratic(K, orders, TARGETS)
    assert left <= theory.cycle_bound(K=3 * K, C=3, L=1.0, E=2, m=1, f0=f0, sigma2=0.0, mu=mu, delta=delta)
    if all(len(set(order)) == 3 for order in orders):  # once a cycle: no model is more than 3 from any target
        assert mu <= delta <= theory.covering_error(K=3 * K, C=3, G=3.0, sigma2=0.0)


def test_what_stays_is_the_mean_alone() -> None:
    """With cycles of one round: a client drawn by chance leaves nothing, always the same one its bias."""
    for K, orders, stays in ((10**4, [(0,), (1,), (2,)], 0.0), (10**4, [(2,)], 2.25)):
        left, f0, mu, delta = quadratic(K, orders, TARGETS, E=1)
        given: dict[str, Any] = {"K": K, "L": 1.0, "E": 1, "f0": f0, "sigma2": 0.0, "m": 1, "delta": delta}
        assert mu == pytest.approx(stays)
        assert left == pytest.approx(stays, abs=0.05)
        assert left <= theory.split_bound(mu=mu, **given) <= theory.separated_bound(**given) * (1 + 1e-12)
        assert theory.split_bound(mu=mu, **given) == pytest.approx(4 * stays, abs=0.2)
        assert theory.separated_bound(**given) > 4 * 1.4  # which takes chance for bias


class Waves:
    """f_i(w) = 1 + cos(w - c_i), of L = 1 and not convex; one client a round, noise +s or -s in each step, E = 2."""

    def __init__(self, centres: list[float], s: float, eta: float) -> None:
        self.centres, self.s, self.eta = np.array(centres), s, eta
        self.N = len(centres)

    def f(self, w: Any) -> Any:
        return np.mean([1 + np.cos(w - c) for c in self.centres], axis=0)

    def gradient(self, i: int, w: Any) -> Any:
        return -np.sin(w - self.centres[i])

    def gradients(self, w: float) -> Any:
        return np.array([self.gradient(i, w) for i in range(self.N)])

    def path(self, i: int, w: float, noise: Sequence[float]) -> tuple[list[float], float]:
        """The exact gradients along the steps of a client, and where it ends."""
        found = []
        for xi in noise:
            found.append(float(self.gradient(i, w)))
            w -= self.eta * (found[-1] + self.s * xi)
        return found, w


waves = st.builds(
    Waves,
    st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    st.floats(0, 1),
    st.floats(0.01, 1 / 6),  # of two steps: eta L E up to 1/3
)


@given(problem=waves, w=st.floats(-3, 3), greedy=st.booleans(), p=st.floats(0, 1))
def test_a_round_makes_the_progress_that_the_proof_of_theorem_2_says(
    problem: Waves, w: float, greedy: bool, p: float
) -> None:
    """Over all noise of all clients, and over cohorts: the steepest client, or a chance of p for the first."""
    E, N, eta = 2, problem.N, problem.eta
    x = eta * E
    chances = np.array([p, 1 - p, 0.0])
    if greedy:
        chances = np.eye(N)[np.argmax(problem.gradients(w))]
    after, mean, delta = 0.0, np.zeros(E), 0.0
    draws = list(itertools.product((-1, 1), repeat=N * E))
    for draw in draws:
        paths = [problem.path(i, w, draw[i * E : (i + 1) * E]) for i in range(N)]
        errors = np.array([exact for exact, _ in paths]) - np.mean([exact for exact, _ in paths], axis=0)
        after += chances @ [problem.f(end) for _, end in paths] / len(draws)
        mean += chances @ errors / len(draws)
        delta += float(chances @ np.square(errors).mean(axis=1)) / len(draws)
    mu, c, sigma2 = np.square(mean).mean(), 1 + 1.4 * x, problem.s**2
    gradients = problem.gradients(w)
    allowed = -eta * E / 4 * gradients.mean() ** 2 + 3 / 4 * eta * x**2 * E * np.square(gradients).mean()
    allowed += eta * x * (x / 2 * (c / N + 3 * E / 4) + c / 2) * sigma2 + eta * E * (mu + x * delta)
    assert after <= problem.f(w) + allowed + 1e-12


@given(problem=waves, w=st.floats(-3, 3), last=st.sampled_from(["steepest", "flattest", "the others"]))
def test_a_cycle_makes_the_progress_that_the_proof_of_theorem_3_says(problem: Waves, w: float, last: str) -> None:
    """Over all noise of two rounds, the first with any client, the second with one chosen by where that has led."""
    E, C, N = 2, 2, problem.N
    T, eta = E * C, problem.eta / C
    problem.eta = eta
    X = eta * T
    alone = np.mean([problem.path(i, w, [0] * T)[0] for i in range(N)])
    after, errors = [], []
    for first, draw in itertools.product(range(N), itertools.product((-1, 1), repeat=T)):
        one, middle = problem.path(first, w, draw[:E])
        gradients = problem.gradients(middle)
        second = {"steepest": gradients.argmax(), "flattest": gradients.argmin(), "the others": (first + 1) % N}[last]
        two, end = problem.path(int(second), middle, draw[E:])
        after.append(problem.f(end))
        errors.append(np.mean([*one, *two]) - alone)
    mu, delta = np.mean(errors) ** 2, np.square(errors).mean()
    gradients = problem.gradients(w)
    allowed = -eta * T / 4 * gradients.mean() ** 2 + 3 / 4 * eta * X**2 * T * np.square(gradients).mean()
    allowed += eta * T * (mu + 2 * X * delta) + 2 * eta * X * problem.s**2
    assert np.mean(after) <= problem.f(w) + allowed + 1e-12


@pytest.mark.skipif(not RESULTS.exists(), reason="results/ is not part of the source distribution")
def test_the_document_says_what_was_measured(scripts: Any) -> None:
    document = (ROOT / "docs" / "theory.md").read_text()
    results = json.loads(RESULTS.read_text())
    rows = {name: scripts.Split(**row) for name, row in results["selectors"].items()}
    assert list(rows) == list(scripts.SELECTORS)
    assert scripts.table(rows) in document
    assert scripts.figure(rows) == (ROOT / "docs" / "figures" / "cohort-error.svg").read_text()
    for row in rows.values():
        assert row.left_most < row.split <= row.separated
        assert row.cycle_left_most < row.cycle_bound
    text = " ".join(document.split())
    random, reshuffle, balanced, rota = (rows[name] for name in ("Random", "Reshuffle", "Balanced", "Rota"))
    divfl, subtrunc, unionfl, poc = (rows[name] for name in ("DivFL", "SubTrunc", "UnionFL", "PowerOfChoice"))
    everybody = next(row for row in results["rows"] if (row["cohort"], row["K"]) == (20, random.K))
    times = [(row.split / row.left, row.cycle_bound / row.cycle_left) for row in rows.values()]
    for sentence in (
        f"its left side is {random.left:.5f}, with everybody {everybody['left']:.5f}",
        f"Theorem 2 has {random.split:.4f} on the right where the bound with noise apart has {random.separated:.4f}",
        f"its `delta` is {random.delta / balanced.delta:.0f} times smaller. - A cohort of `Reshuffle`",
        f"but {reshuffle.mu / reshuffle.delta:.0%} of its `delta` is no chance, where 13/36",
        f"makes a floor of that, {4 * reshuffle.mu:.4f}",
        f"`delta_C` is {reshuffle.cycle_delta:.1e}, and {random.cycle_delta:.1e} with `Random`",
        f"With `Rota` it is {rota.cycle_delta:.1e}",
        f"balance in every round: its `delta` is {reshuffle.delta / rota.delta:.0f} times smaller",
        f"They tend to {divfl.floor:.4f} and {subtrunc.floor:.4f}; their `mu_C` is {divfl.cycle_mu:.4f} and "
        f"{subtrunc.cycle_mu:.4f}",
        f"is {unionfl.delta / unionfl.cycle_delta:.1f} times smaller than that of its rounds, and it tends to "
        f"{unionfl.floor:.4f}",
        f"of which {1 - poc.mu / poc.delta:.0%} is chance. It tends to {poc.floor:.4f}",
        f"{min(t for t, _ in times):.1f} to {max(t for t, _ in times):.1f} times the left, and that of Theorem 3 "
        f"{min(t for _, t in times):.1f} to {max(t for _, t in times):.1f} times; its runs are the first quarters of "
        f"these, {random.K // scripts.CYCLE**2} cycles",
    ):
        assert sentence in text
    lefts = [row.left for row in (random, reshuffle, balanced, rota)]
    assert max(lefts) < 1.02 * min(lefts)  # "end within 2 % of each other"
    assert max(rows.values(), key=lambda row: row.delta) is poc
    assert all(abs(row.floor) < 0.0002 for row in (random, reshuffle, balanced, rota))  # none
