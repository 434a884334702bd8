import math
from typing import Any

import numpy as np
import pytest

from equifl.experiment.results import Results
from equifl.experiment.table import make_table
from equifl.report.numbers import ClientPoint, Numbers, Point, make_numbers
from tests.report.example_records import configuration, records

CONFIG = {
    "rounds": 4,
    "clients": 3,
    "seeds": [5, 7],
    "selectors": {"rota": {}},
    "data": {"partition": {"kind": "classes"}},
}
NATURAL: dict[str, Any] = {"data": {"partition": {"kind": "natural"}}}
LIVE: dict[str, Any] = {"data": {"name": "Flower"}, "clients": None, "rounds": None, "flower": {}}


def row(seed: int, round: int, cohort: list[int], **more: Any) -> dict[str, Any]:
    base = {"round": round, "selector": "rota", "seed": seed, "cohort": cohort, "bytes_down": 100, "bytes_up": 10}
    return base | more


def evaluated(seed: int, round: int, cohort: list[int], clients: list[float], dissimilarity: float) -> dict[str, Any]:
    accuracy = sum(clients) / len(clients)
    more = {"dissimilarity": dissimilarity, "worst10": min(clients)}
    return row(seed, round, cohort, accuracy=accuracy, client_accuracy=clients, **more)


ROWS = [
    row(5, 0, [0, 1], objective={"G": 2.0}),
    row(7, 0, [1, 2], objective={"G": 4.0, "H": 1.0}, bytes_down=300),
    evaluated(5, 1, [0, 2], [30.0, 60.0, 0.0], 40.0),
    evaluated(7, 1, [0, 1], [60.0, 90.0, 30.0], 20.0),
    row(5, 2, [0, 1]),
    row(7, 2, [2, 1]),
    evaluated(5, 3, [2, 1], [50.0, 90.0, 10.0], 50.0),
    evaluated(7, 3, [2, 0], [80.0, 30.0, 70.0], 30.0),
]


def numbers(rows: list[dict[str, Any]] = ROWS, **more: Any) -> Numbers:
    return make_numbers(CONFIG | more, Results(CONFIG | more, {}, rows).whole_rounds)


def test_series_have_the_mean_and_the_interval_of_every_evaluated_round() -> None:
    # t of 1 degree is 12.7062 at 97.5 %, and s / sqrt(2) of a pair is half its difference.
    found = numbers().selectors["rota"]
    assert found.score.rounds == found.dissimilarity.rounds == [2, 4]
    assert found.score.mean == pytest.approx([45.0, 55.0])
    assert found.score.half_width == pytest.approx([15 * 12.7062, 5 * 12.7062], rel=1e-5)
    assert found.dissimilarity.mean == [30.0, 40.0]
    assert found.worst10.mean == [15.0, 20.0]
    assert found.dissimilarity.half_width == pytest.approx([10 * 12.7062, 10 * 12.7062], rel=1e-5)


def test_one_seed_has_no_interval() -> None:
    found = numbers([row for row in ROWS if row["seed"] == 5], seeds=[5]).selectors["rota"]
    assert found.score.mean == [30.0, 50.0]
    assert all(math.isnan(half) for half in found.score.half_width)


def test_clients_are_sorted_within_each_seed_and_averaged_by_rank() -> None:
    found = numbers().selectors["rota"].clients
    assert (found.ids, found.mean, found.tenth) == (None, [20.0, 60.0, 85.0], 1)
    assert found.half_width == pytest.approx([10 * 12.7062, 10 * 12.7062, 5 * 12.7062], rel=1e-5)


@pytest.mark.parametrize("more", [NATURAL, LIVE])
def test_clients_that_are_the_same_in_every_seed_are_averaged_and_then_sorted(more: dict[str, Any]) -> None:
    found = numbers(**more)
    assert found.same_clients
    clients, counts = found.selectors["rota"].clients, found.selectors["rota"].participation.counts
    assert (clients.ids, clients.mean) == ([2, 1, 0], [40.0, 60.0, 65.0])
    assert clients.half_width == pytest.approx([30 * 12.7062, 30 * 12.7062, 15 * 12.7062], rel=1e-5)
    assert (counts.ids, counts.mean) == ([1, 0, 2], [3.0, 2.5, 2.5])


def test_of_one_seed_the_clients_are_known_by_their_ids() -> None:
    found = numbers([row for row in ROWS if row["seed"] == 5], seeds=[5]).selectors["rota"]
    assert (found.clients.ids, found.clients.mean) == ([2, 0, 1], [10.0, 50.0, 90.0])
    assert (found.participation.counts.ids, found.participation.counts.mean) == ([0, 1, 2], [3.0, 3.0, 2.0])
    assert all(math.isnan(half) for half in found.clients.half_width)


def test_who_did_not_evaluate_is_left_out_and_who_joined_later_is_not() -> None:
    nan = math.nan
    last = {5: [50.0, None, 10.0], 7: [80.0, nan, 20.0, None, 40.0]}
    rows = [row | {"client_accuracy": last[row["seed"]]} if row["round"] == 3 else row for row in ROWS]
    found = numbers(rows, **LIVE)
    clients = found.selectors["rota"].clients
    assert (clients.ids, clients.mean) == ([2, 4, 0], [15.0, 40.0, 65.0])
    assert math.isnan(clients.half_width[1])  # one seed alone knows client 4
    assert found.clients == 5
    assert found.selectors["rota"].participation.counts.mean == [3.0, 2.5, 2.5, 0.0, 0.0]
    points = {(point.seed, point.client) for point in found.selectors["rota"].scatter}
    assert points == {(5, 0), (5, 2), (7, 0), (7, 2), (7, 4)}


def test_ids_that_belong_to_nobody_any_more_are_no_clients() -> None:
    more = {0: {"names": {0: "a", 1: "b", 2: "c", 3: "d", 4: "e"}}, 3: {"names": {1: "", 4: ""}}}
    rows = [row | more.get(row["round"], {}) for row in ROWS if row["seed"] == 5]
    last = rows[-1] | {"client_accuracy": [50.0, None, 10.0, 20.0, None], "cohort": [2, 4]}
    found = numbers([*rows[:-1], last], **LIVE, seeds=[5])
    counts = found.selectors["rota"].participation.counts
    assert (found.clients, counts.ids, counts.mean) == (3, [0, 2, 3], [3.0, 2.0, 0.0])
    assert found.names == {0: "a", 2: "c", 3: "d"}
    assert found.selectors["rota"].participation.selected.shape == (4, 4)


@pytest.mark.parametrize("clients", [3, 20, 37])
def test_the_worst_ranks_have_the_accuracy_of_the_tables_worst_tenth(clients: int) -> None:
    config = configuration(["uniform", "divfl", "rota"], clients=clients, per_round=2, seeds=[0, 1, 2, 3, 4])
    rows = records(config)
    table = make_table(rows)
    for name, selector in make_numbers(config, rows).selectors.items():
        cell = table.cells[name]["worst 10 %"]
        assert np.mean(selector.clients.mean[: selector.clients.tenth]) == pytest.approx(cell.mean, abs=1e-3)
        assert selector.worst10.mean[-1] == pytest.approx(cell.mean)
        assert selector.worst10.half_width[-1] == pytest.approx(cell.half_width)


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (19, 1), (20, 2), (300, 30)])
def test_the_worst_tenth_is_at_least_one_client(clients: int, worst: int) -> None:
    config = configuration(clients=clients, per_round=1)
    assert make_numbers(config, records(config)).selectors["rota"].clients.tenth == worst


def test_the_map_is_of_the_first_seed_and_the_counts_are_means_by_rank() -> None:
    found = numbers().selectors["rota"].participation
    assert found.seed == 5
    assert found.selected.tolist() == [[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 0, 1]]
    # Seed 5: 3, 3, 2 times; seed 7: clients 1 and 2 three times, client 0 twice.
    assert (found.counts.ids, found.counts.mean) == (None, [3.0, 3.0, 2.0])
    assert found.counts.half_width == [0.0, 0.0, 0.0]


def test_a_point_a_client_has_what_was_selected_up_to_the_last_evaluation() -> None:
    found = numbers(ROWS[:6]).selectors["rota"]  # evaluated after two rounds, three played
    assert found.scatter == [
        *(ClientPoint(5, 0, 2, 30.0), ClientPoint(5, 1, 1, 60.0), ClientPoint(5, 2, 1, 0.0)),
        *(ClientPoint(7, 0, 1, 60.0), ClientPoint(7, 1, 2, 90.0), ClientPoint(7, 2, 1, 30.0)),
    ]
    assert found.participation.counts.mean == [3.0, 2.0, 1.0]  # of all three rounds


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
    with pytest.raises(ValueError, match=r"^records: no round was evaluated; .* evaluate_every=1"):
        numbers(rows)
