import numpy as np
import pytest
from scipy.stats import t

from equifl.hosts.part_of_clients import intervals, student
from equifl.metrics import dissimilarity, std


def test_the_quantile_is_that_of_scipy() -> None:
    for freedom in range(2, 200):
        assert student(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=0.01)


def test_the_interval_of_a_plain_mean_is_students() -> None:
    accuracy = np.random.default_rng(0).random(12)
    expected = 100 * t.ppf(0.975, 11) * accuracy.std(ddof=1) / np.sqrt(12) * np.sqrt(1 - 12 / 40)
    assert intervals(accuracy, np.ones(12), 40)["accuracy"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("n", [3, 4, 25])
def test_the_jackknife_is_that_of_figures_without_each_client(n: int) -> None:
    rng = np.random.default_rng(n)
    accuracy, sizes = rng.random(n).round(1), rng.integers(1, 9, n).astype(float)
    figures: dict[str, list[float]] = {"accuracy": [], "dissimilarity": [], "std": []}
    for i in range(n):
        rest = np.delete(accuracy, i)
        figures["accuracy"].append(float(np.average(rest, weights=np.delete(sizes, i))))
        figures["dissimilarity"].append(dissimilarity(rest))
        figures["std"].append(std(rest))
    found = intervals(accuracy, sizes, 40)
    for name, without in figures.items():
        variance = (n - 1) / n * sum((one - np.mean(without)) ** 2 for one in without)
        expected = 100 * t.ppf(0.975, n - 1) * np.sqrt(variance) * np.sqrt(1 - n / 40)
        assert found[name] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("n", [10, 30])
def test_intervals_of_a_part_hold_the_figure_of_all(n: int) -> None:
    """Clients of three kinds, of which some evaluate: in 95 of 100 draws, or nearly."""
    rng = np.random.default_rng(0)
    everybody, sizes = rng.beta([[9.0], [5.0], [3.0]], 3, (3, 40)).ravel(), rng.integers(20, 400, 120).astype(float)
    true = {
        "accuracy": np.average(everybody, weights=sizes),
        "dissimilarity": dissimilarity(everybody),
        "std": std(everybody),
    }
    held = dict.fromkeys(true, 0)
    for _ in range(200):
        who = rng.choice(120, n, replace=False)
        found = {
            "accuracy": np.average(everybody[who], weights=sizes[who]),
            "dissimilarity": dissimilarity(everybody[who]),
            "std": std(everybody[who]),
        }
        for name, width in intervals(everybody[who], sizes[who], 120).items():
            held[name] += abs(100 * (found[name] - true[name])) <= width
    assert all(170 <= count <= 200 for count in held.values()), held


@pytest.mark.parametrize(("n", "clients"), [(2, 10), (10, 10), (10, 9)])
def test_there_are_none_of_a_few_or_of_all(n: int, clients: int) -> None:
    assert intervals(np.linspace(0, 1, n), np.ones(n), clients) == {}
