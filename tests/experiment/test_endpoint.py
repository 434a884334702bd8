from typing import Any

import pytest

from equifl.experiment.endpoint import common_score, cycle, last_evaluations, matched_evaluations
from equifl.experiment.table import make_table


def run(*accuracies: float) -> list[dict[str, Any]]:
    return [{"accuracy": accuracy, "round": round} for round, accuracy in enumerate(accuracies)]


def test_the_second_half_of_the_evaluations_at_most() -> None:
    for count, expected in ((1, [7.0]), (3, [5.0, 6.0, 7.0]), (9, [4.0, 5.0, 6.0, 7.0])):
        ((_, found),) = last_evaluations({"rota": {0: run(*range(1, 8))}}, count)["rota"].items()
        assert [row["accuracy"] for row, _ in found] == expected
        assert {weight for _, weight in found} == {1.0}
    assert len(last_evaluations({"rota": {0: run(1.0)}}, 5)["rota"][0]) == 1


def test_the_score_that_every_run_reaches() -> None:
    found = {"a": {0: run(10, 90, 50), 1: run(20, 60)}, "b": {0: run(70, 65)}}
    assert common_score(found, "accuracy") == 60


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ((50, 70, 90), [(50, 0.5), (70, 0.5)]),
        ((60, 70), [(60, 1.0)]),  # exactly there
        ((80, 90), [(80, 1.0)]),  # from the first evaluation on
        ((40, 50, 45, 65), [(45, 0.25), (65, 0.75)]),  # the first crossing, whatever was before
    ],
)
def test_where_a_run_first_has_a_score(accuracies: tuple[float, ...], expected: list[tuple[float, float]]) -> None:
    found = matched_evaluations({"rota": {0: run(*accuracies)}}, "accuracy", 60.0)["rota"][0]
    assert [(row["accuracy"], weight) for row, weight in found] == expected


def test_a_matched_table_takes_all_measures_there() -> None:
    """Random is at 60 % and 12 points in its last round, Rota at 60 % half-way between 10 and 6 points."""

    def row(selector: str, round: int, accuracy: float, dissimilarity: float) -> dict[str, Any]:
        return {"selector": selector, "seed": 0, "round": round, "accuracy": accuracy, "dissimilarity": dissimilarity}

    rows = [row("uniform", 0, 40, 20), row("rota", 0, 50, 10), row("uniform", 1, 60, 12), row("rota", 1, 70, 6)]
    made = make_table(rows, measures=["accuracy", "dissimilarity"], matched=True)
    assert made.matched == 60
    assert [made.cells[name]["accuracy %"].mean for name in ("uniform", "rota")] == [60, 60]
    assert [made.cells[name]["dissimilarity"].mean for name in ("uniform", "rota")] == [12, 8]
    difference = made.cells["rota"]["dissimilarity"].difference
    assert difference is not None
    assert difference[0] == -4


def test_everybody_has_a_turn_in_a_cycle() -> None:
    assert cycle({"clients": 100, "per_round": 10}) == 10
    assert cycle({"clients": 10, "per_round": 3}) == 4
    assert cycle({"clients": None, "per_round": 3}) == 1
