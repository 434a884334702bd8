import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl import metrics

NAN = float("nan")
some_values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)
some_counts = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def test_dissimilarity_by_hand() -> None:
    # |2-5| + |2-9| + |5-9| = 3 + 7 + 4 = 14, over 3 pairs
    assert metrics.dissimilarity([5, 2, 9]) == pytest.approx(14 / 3)
    # one pair in four clients differs from the rest by 1: 3 of 6 pairs
    assert metrics.dissimilarity([1, 0, 0, 0]) == 0.5
    assert metrics.dissimilarity([0.3]) == 0
    assert metrics.dissimilarity([0.1] * 7) == 0  # exactly, though 0.1 is not


@given(some_values)
def test_dissimilarity_is_the_mean_over_all_pairs(values: list[float]) -> None:
    gaps = [abs(a - b) for a, b in itertools.combinations(values, 2)]
    expected = sum(gaps) / len(gaps) if gaps else 0.0
    assert metrics.dissimilarity(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_std_by_hand() -> None:
    # mean 3; squared deviations 4 + 1 + 9 + 0 = 14, over 4 clients and not 3
    assert metrics.std([1, 2, 6, 3]) == pytest.approx(math.sqrt(14 / 4))
    assert metrics.std([4]) == 0


def test_gap_by_hand() -> None:
    assert metrics.gap([5, -2, 9]) == 11  # 9 - (-2)
    assert metrics.gap([4]) == 0


def test_worst_and_best_by_hand() -> None:
    values = np.random.default_rng(0).permutation(20)  # 0 .. 19; a tenth is two clients
    assert metrics.worst(values) == 0.5  # (0 + 1) / 2
    assert metrics.best(values) == 18.5  # (18 + 19) / 2
    assert metrics.worst(values, share=0.26) == 2  # floor(5.2) = 5 clients: (0 + 1 + 2 + 3 + 4) / 5
    assert metrics.worst(values, share=1) == metrics.best(values, share=1) == 9.5
    assert (metrics.worst([3, 1, 2]), metrics.best([3, 1, 2])) == (1, 3)  # a tenth of three: one at least


def test_a_share_is_not_cut_by_rounding() -> None:
    assert 0.29 * 100 < 29
    assert metrics.worst(np.arange(100), share=0.29) == 14  # the mean of 0 .. 28


def test_jain_by_hand() -> None:
    assert metrics.jain([1, 2, 3]) == pytest.approx(36 / 42)  # (1 + 2 + 3)^2 = 36; 3 (1 + 4 + 9) = 42
    assert metrics.jain([7, 0, 0, 0]) == 0.25  # 49 / (4 * 49)
    assert metrics.jain([0.3, 0.3]) == 1
    assert metrics.jain([0, 0, 0]) == 1


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e200, 5e307])
def test_jain_knows_no_unit(scale: float) -> None:
    assert metrics.jain(np.array([1, 3]) * scale) == pytest.approx(0.8)  # 4^2 / (2 * 10)


def test_gini_by_hand() -> None:
    # pairs of 0, 1, 2, 5: 1 + 2 + 5 + 1 + 4 + 3 = 16; over N sum = 4 * 8
    assert metrics.gini([5, 0, 2, 1]) == 0.5
    assert metrics.gini([0, 0, 0, 9]) == 0.75  # (N - 1) / N: 3 pairs of 9, over 4 * 9
    assert metrics.gini([3, 3, 3]) == 0
    assert metrics.gini([0, 0]) == 0
    assert metrics.gini([4]) == 0


@given(some_counts)
def test_gini_is_the_double_sum(counts: list[int]) -> None:
    double = sum(abs(a - b) for a in counts for b in counts)
    expected = double / (2 * len(counts) * sum(counts)) if any(counts) else 0.0
    assert metrics.gini(counts) == pytest.approx(expected, abs=1e-12)


def test_entropy_by_hand() -> None:
    # p = 1/2, 1/4, 1/4, 0: (1/2) ln 2 + 2 (1/4) ln 4 = 1.5 ln 2; ln N = ln 4 = 2 ln 2
    assert metrics.entropy([2, 1, 1, 0]) == pytest.approx(0.75)
    assert metrics.entropy([0, 6, 0]) == 0
    assert math.copysign(1, metrics.entropy([0, 6, 0])) == 1  # and no -0.0 in a table
    assert metrics.entropy([0, 0]) == 1
    assert metrics.entropy([4]) == 1


@given(some_counts)
def test_ratios_stay_in_range_and_agree_on_equality(counts: list[int]) -> None:
    equal = len(set(counts)) == 1
    n = len(counts)
    assert 0 <= metrics.gini(counts) <= (n - 1) / n + 1e-12
    assert 1 / n - 1e-12 <= metrics.jain(counts) <= 1 + 1e-12
    assert 0 <= metrics.entropy(counts) <= 1
    assert (metrics.gini(counts) == 0) == equal
    assert (metrics.jain(counts) > 1 - 1e-9) == equal
    assert (metrics.entropy(counts) > 1 - 1e-9) == equal


def test_never_by_hand() -> None:
    assert metrics.never([0, 2, 0, 1]) == 2
    assert metrics.never([1]) == 0


@pytest.mark.parametrize(
    ("cohorts", "longest"),
    [
        ([[0, 1], [0, 1]], 0),  # everybody, always
        ([[0], [0], [1], [0, 1]], 2),  # client 1 waits for rounds 0 and 1 before its first
        ([[0, 1], [0], [0], [0], [1]], 3),  # client 1 waits for rounds 1, 2, 3 in the middle
        ([[0, 1], [0], [0]], 2),  # client 1 waits for rounds 1 and 2 at the end
        ([[0], [0], [0]], 3),  # client 1 never plays: all three rounds
        ([[], [1, 0], []], 1),  # a round in which nobody could be asked
        ([], 0),
    ],
)
def test_longest_wait_by_hand(cohorts: list[list[int]], longest: int) -> None:
    assert metrics.longest_wait(cohorts, clients=2) == longest


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.sets(st.integers(0, n - 1))))))
def test_longest_wait_is_the_longest_run_of_absence(drawn: tuple[int, list[set[int]]]) -> None:
    clients, cohorts = drawn
    longest = 0
    for client in range(clients):
        absent = [client not in cohort for cohort in cohorts]
        longest = max(longest, *(len(list(run)) for missed, run in itertools.groupby(absent) if missed), 0)
    assert metrics.longest_wait([sorted(cohort) for cohort in cohorts], clients) == longest


def test_fairness_by_hand_in_points() -> None:
    # 50, 75, 100: pairs 25 + 25 + 50 = 100 over 3; deviations 625 + 0 + 625 over 3;
    # Jain (2.25)^2 / (3 (0.25 + 0.5625 + 1)) = 5.0625 / 5.4375
    assert metrics.fairness([0.75, 1.0, 0.5]) == pytest.approx(
        {
            "accuracy_mean": 75,
            "dissimilarity": 100 / 3,
            "std": math.sqrt(1250 / 3),
            "gap": 50,
            "worst10": 50,
            "best10": 100,
            "jain": 5.0625 / 5.4375,
        }
    )


def test_participation_by_hand() -> None:
    # counts 2, 1, 1, 0: pairs 1 + 1 + 2 + 0 + 1 + 1 = 6 over 4 * 4; Jain 16 / (4 * 6); entropy as above;
    # client 3 never plays in two rounds
    expected = {"gini": 6 / 16, "jain": 16 / 24, "entropy": 0.75, "never": 1, "longest_wait": 2}
    assert metrics.participation([2, 1, 1, 0], [np.array([0, 1]), np.array([2, 0])]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("needs", "fresh", "numbers"),
    [
        # N = 10 clients, k = 2, P = 100: training is 200 numbers down and 200 up
        (set(), False, (200, 200)),
        ({"updates"}, False, (200, 200)),  # the update that training sends is the signal
        ({"losses"}, False, (200, 202)),  # one loss from each of the two
        ({"losses", "updates"}, False, (200, 202)),
        (set(), True, (200, 200)),  # nothing needed, nobody asked
        ({"losses"}, True, (1000, 210)),  # the model to all ten, ten losses back
        ({"updates"}, True, (1000, 1200)),  # ten gradients of 100 numbers back
        ({"losses", "updates"}, True, (1000, 1210)),
    ],
)
def test_round_bytes_by_hand(needs: set[str], fresh: bool, numbers: tuple[int, int]) -> None:
    down, up = numbers
    settings: dict[str, Any] = {"clients": 10, "cohort": 2, "parameters": 100, "needs": needs, "fresh": fresh}
    assert metrics.round_bytes(**settings) == (4 * down, 4 * up)
    assert metrics.round_bytes(**settings, number_bytes=2) == (2 * down, 2 * up)
    shorter = metrics.round_bytes(**settings, sketch=7)  # of the ten gradients, if any
    assert shorter == (4 * down, 4 * (up - 930 if fresh and "updates" in needs else up))
    # one of the two stays silent: nothing less goes down, and up its update is missing, with its loss if not yet sent
    missing = 100 + ("losses" in needs and not fresh)
    assert metrics.round_bytes(**settings, replied=1) == (4 * down, 4 * (up - missing))


PER_CLIENT = [
    metrics.dissimilarity,
    metrics.std,
    metrics.gap,
    metrics.worst,
    metrics.best,
    metrics.jain,
    metrics.fairness,
]
OF_COUNTS = [metrics.gini, metrics.entropy, metrics.never, lambda counts: metrics.participation(counts, [])]


@pytest.mark.parametrize("metric", PER_CLIENT)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"values: shape \(0,\) is not allowed; allowed: one value a client, N >= 1"),
        (0.5, r"values: shape \(\)"),
        ([[0.5]], r"values: shape \(1, 1\)"),
        ([0.5, NAN], r"values: client 1 has nan; allowed: finite numbers"),
        ([np.inf, 0.5], r"values: client 0 has inf"),
        (["a"], r"values: cannot be read as numbers"),
    ],
)
def test_refuses_wrong_values(metric: Callable[[Any], Any], values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric(values)


@pytest.mark.parametrize("metric", OF_COUNTS)
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], r"counts: shape \(0,\)"),
        ([1, -2], r"counts: client 1 has -2; allowed: 0 or more"),
        ([1.5, 2], r"counts: .* allowed: integers"),
        ([NAN, 2], r"counts: .* allowed: integers"),
    ],
)
def test_refuses_wrong_counts(metric: Callable[[Any], Any], counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric(counts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.fairness([0.5, 83.0]), r"values: client 1 has 83.0; allowed: accuracies from 0 to 1"),
        (lambda: metrics.jain([1, -1]), r"values: client 1 has -1.0; allowed: 0 or more"),
        (lambda: metrics.worst([1.0], share=0), r"share: 0 is not allowed; allowed: above 0 and at most 1"),
        (lambda: metrics.best([1.0], share=10), r"share: 10 is not allowed"),
        (lambda: metrics.longest_wait([[0], [2]], clients=2), r"cohorts\[1\]: \[2\] is not allowed; .* from 0 to 1"),
        (lambda: metrics.longest_wait([[-1]], clients=2), r"cohorts\[0\]: \[-1\]"),
        (lambda: metrics.longest_wait([[0.5]], clients=2), r"cohorts\[0\]: .* allowed: integers"),
        (lambda: metrics.longest_wait([], clients=0), r"clients: 0 is not allowed"),
        (lambda: metrics.round_bytes(clients=2, cohort=3, parameters=1), r"cohort: 3 is not allowed; .* at most 2"),
        (lambda: metrics.round_bytes(clients=2, cohort=1, parameters=1, replied=2), r"replied: 2 .* at most 1"),
        (lambda: metrics.round_bytes(clients=2, cohort=1, parameters=-1), r"parameters: -1 is not allowed"),
        (lambda: metrics.round_bytes(clients=2, cohort=1, parameters=1, needs={"loss"}), r"needs: {'loss'} is not"),
    ],
)
def test_refuses_what_is_wrong_by_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_variance_angle_and_entropy_by_hand(values: list[float]) -> None:
    n, mean = len(values), sum(values) / len(values)
    assert metrics.variance(values) == pytest.approx(sum((a - mean) ** 2 for a in values) / n, abs=1e-9)
    if max(values) > 1e-3:
        length = math.sqrt(n * sum(a * a for a in values))
        cosine = min(1.0, sum(values) / length)
        assert math.cos(math.radians(metrics.angle(values))) == pytest.approx(cosine, abs=1e-9)
        shares = [a / sum(values) for a in values]
        entropy = -sum(p * math.log(p) for p in shares if p > 0) / math.log(n) if n > 1 else 1.0
        assert metrics.value_entropy(values) == pytest.approx(entropy, abs=1e-9)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0, 1))
def test_a_quantile_by_hand(values: list[float], share: float) -> None:
    ordered, place = sorted(values), share * (len(values) - 1)
    low = min(math.floor(place), len(values) - 1)
    high = min(low + 1, len(values) - 1)
    expected = ordered[low] + (place - low) * (ordered[high] - ordered[low])
    assert metrics.quantile(values, share) == pytest.approx(expected, abs=1e-9)


def test_equal_clients_have_no_angle_and_full_entropy() -> None:
    assert metrics.angle([0.0, 0.0]) == metrics.angle([7.0]) == 0.0
    assert metrics.value_entropy([0.0, 0.0]) == metrics.value_entropy([7.0]) == 1.0
    assert metrics.value_entropy([0.0, 5.0, 0.0]) == 0.0


def test_expected_values_are_the_accuracies_on_infinitely_many_examples() -> None:
    """A client whose test examples are drawn anew again and again from its classes fares so on average."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    right = rng.random(400) < np.array([0.9, 0.5, 0.7, 0.2])[labels]
    by_class = [right[labels == c].mean() for c in range(4)]
    mixtures = [[3, 1, 0, 0], [0, 0, 2, 2], [1, 1, 1, 1]]
    for counts, found in zip(mixtures, metrics.expected_values(mixtures, by_class), strict=True):
        owned = [c for c, count in enumerate(counts) for _ in range(count)]
        draws = [np.mean([rng.choice(right[labels == c]) for c in owned]) for _ in range(3000)]
        assert found == pytest.approx(np.mean(draws), abs=0.02)


def test_a_class_that_nobody_has_needs_no_accuracy() -> None:
    assert metrics.expected_values([[1, 0, 1]], [0.5, math.nan, 1.0]).tolist() == [0.75]
    with pytest.raises(ValueError, match=r"by_class: .* allowed: a number for every class that a client has"):
        metrics.expected_values([[1, 1, 1]], [0.5, math.nan, 1.0])


@pytest.mark.parametrize("accuracy", [0.0, 0.3, 0.87, 1.0])
@pytest.mark.parametrize("sizes", [[20, 20], [10, 40, 90], [99] * 5])
def test_the_noise_floor_is_what_binomial_draws_give(accuracy: float, sizes: list[int]) -> None:
    """Every outcome of two clients with its probability, pair by pair."""

    def law(n: int) -> list[float]:
        return [math.comb(n, k) * accuracy**k * (1 - accuracy) ** (n - k) for k in range(n + 1)]

    apart: list[float] = [
        sum(p * q * abs(i / n - j / m) for i, p in enumerate(law(n)) for j, q in enumerate(law(m)))
        for n, m in itertools.combinations(sizes, 2)
    ]
    assert metrics.noise_floor(accuracy, sizes) == pytest.approx(np.mean(apart), rel=0.03)


def test_one_client_has_no_noise_to_differ_by() -> None:
    assert metrics.noise_floor(0.5, [10]) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.noise_floor(50, [10, 10]), "accuracy: 50 is not allowed; allowed: from 0 to 1"),
        (lambda: metrics.noise_floor(0.5, [10, 0]), "sizes.*allowed: above 0"),
        (lambda: metrics.expected_values([[1, 2]], [1.0]), r"mixtures: \(1, 2\) is not allowed"),
        (lambda: metrics.expected_values([[0, 0]], [1.0, 1.0]), "a client without test examples"),
        (lambda: metrics.quantile([1.0], 2), "share: 2 is not allowed; allowed: from 0 to 1"),
        (lambda: metrics.value_entropy([-1.0]), "values.*allowed: 0 or more"),
    ],
)
def test_refuses_what_no_measure_has(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
