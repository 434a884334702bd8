import math
from typing import Any

import pytest

from equifl.report.numbers import Numbers, Point, make_numbers
from tests.report.made_up import configuration, records

CONFIG = {"rounds": 4, "clients": 3, "seeds": [5, 7], "selectors": {"rota": {}}}


def row(seed: int, round: int, cohort: list[int], **more: Any) -> dict[str, Any]:
    base = {"round": round, "selector": "rota", "seed": seed, "cohort": cohort, "bytes_down": 100, "bytes_up": 10}
    return base | more


def evaluated(seed: int, round: int, cohort: list[int], clients: list[float], apart: float) -> dict[str, Any]:
    accuracy = sum(clients) / len(clients)
    return row(seed, round, cohort, accuracy=accuracy, client_accuracy=clients, dissimilarity=apart)


ROWS = [
    row(5, 0, [0, 1], objective={"G": 2.0}),
    row(7, 0, [1, 2], objective={"G": 4.0, "H": 1.0}, bytes_down=300),
    evaluated(5, 1, [0, 2], [30.0, 60.0, 0.0], 40.0),
    evaluated(7, 1, [0, 1], [60.0, 90.0, 30.0], 20.0),
    row(5, 2, [0, 1]),
    row(7, 2, [2, 1]),
    evaluated(5, 3, [2, 1], [50.0, 90.0, 10.0], 50.0),
    evaluated(7, 3, [2, 0], [70.0, 80.0, 30.0], 30.0),
]


def numbers(rows: list[dict[str, Any]] = ROWS, **more: Any) -> Numbers:
    return make_numbers(CONFIG | more, rows)


def test_series_have_the_mean_and_the_interval_of_every_evaluated_round() -> None:
    # t of 1 degree is 12.7062 at 97.5 %, and s / sqrt(2) of a pair is half its difference.
    found = numbers().selectors["rota"]
    assert found.accuracy.rounds == found.dissimilarity.rounds == [2, 4]
    assert found.accuracy.mean == pytest.approx([45.0, 55.0])
    assert found.accuracy.half_width == pytest.approx([15 * 12.7062, 5 * 12.7062], rel=1e-5)
    assert found.dissimilarity.mean == [30.0, 40.0]
    assert found.dissimilarity.half_width == pytest.approx([10 * 12.7062, 10 * 12.7062], rel=1e-5)


def test_one_seed_has_no_interval() -> None:
    found = numbers([row for row in ROWS if row["seed"] == 5], seeds=[5]).selectors["rota"]
    assert found.accuracy.mean == [30.0, 50.0]
    assert all(math.isnan(half) for half in found.accuracy.half_width)


def test_clients_are_averaged_over_seeds_and_sorted_from_the_worst() -> None:
    found = numbers().selectors["rota"].clients
    assert (found.ids, found.accuracy, found.worst) == ([2, 0, 1], [20.0, 60.0, 85.0], 1)


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (19, 1), (20, 2), (300, 30)])
def test_the_worst_tenth_is_at_least_one_client(clients: int, worst: int) -> None:
    config = configuration(clients=clients, per_round=1)
    assert make_numbers(config, records(config)).selectors["rota"].clients.worst == worst


def test_the_map_is_of_the_first_seed_and_the_counts_are_of_all() -> None:
    found = numbers().selectors["rota"].participation
    assert found.seed == 5
    assert found.selected.tolist() == [[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 0, 1]]
    assert found.counts == [5, 6, 5]


def test_terms_are_averaged_over_the_seeds_that_have_them() -> None:
    terms = numbers().selectors["rota"].terms
    assert {term: (series.rounds, series.mean) for term, series in terms.items()} == {
        "G": ([1], [3.0]),
        "H": ([1], [1.0]),
    }


def test_bytes_add_up_over_rounds() -> None:
    found = numbers().selectors["rota"]
    assert found.down.rounds == found.up.rounds == [1, 2, 3, 4]
    assert found.down.mean == [200.0, 300.0, 400.0, 500.0]  # the first round of seed 7 cost 300
    assert found.up.mean == [10.0, 20.0, 30.0, 40.0]


def test_the_plane_has_a_point_a_seed() -> None:
    assert numbers().selectors["rota"].plane == [Point(5, 50.0, 50.0), Point(7, 60.0, 30.0)]


def test_selectors_come_in_the_order_of_the_configuration() -> None:
    config = configuration(["rota", "uniform", "divfl"])
    assert list(make_numbers(config, records(config)[::-1]).selectors) == ["rota", "uniform", "divfl"]


def test_an_unfinished_run_shows_what_is_there() -> None:
    found = numbers(ROWS[:6])
    assert (found.rounds, found.played, found.evaluated, found.finished) == (4, 3, 2, False)
    assert found.selectors["rota"].plane == [Point(5, 30.0, 40.0), Point(7, 60.0, 20.0)]
    assert numbers().finished


def test_a_round_that_is_only_half_written_does_not_count() -> None:
    assert numbers(ROWS[:7]).played == 3


@pytest.mark.parametrize("rows", [[], ROWS[:2], ROWS[:3]])
def test_refuses_a_run_without_an_evaluation(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"^records: no evaluated round yet$"):
        numbers(rows)
