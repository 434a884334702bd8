import json
import math
from typing import Any

import pytest
from scipy import stats

from equifl.experiment.measures import MEASURES
from equifl.experiment.names import display_name
from equifl.experiment.table import Cell, final_rows, make_table

TITLES = [measure.title for measure in MEASURES]


def row(selector: str, seed: int, round: int = 9, **more: Any) -> dict[str, Any]:
    """A record of a round without an evaluation."""
    return {"round": round, "selector": selector, "seed": seed, "cohort": [0], "local_loss": 1.0, **more}


def evaluated(selector: str, seed: int, value: float, round: int = 9, **more: Any) -> dict[str, Any]:
    """A record in which every measure has the same value."""
    measures = {"accuracy": value, "dissimilarity": value, "worst10": value, "local_loss": value}
    return row(selector, seed, round, **(measures | {"participation": {"gini": value}} | more))


def made_up(values: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [evaluated(name, seed, value) for name, series in values.items() for seed, value in enumerate(series)]


def cell(rows: list[dict[str, Any]], name: str, title: str = "accuracy %", **more: Any) -> Cell:
    return make_table(rows, **more).cells[name][title]


def test_mean_and_interval_by_hand() -> None:
    # Mean 20, deviation 10, t of 2 degrees 4.302653 at 97.5 %: 4.302653 * 10 / sqrt(3).
    found = cell(made_up({"uniform": [10.0, 20.0, 30.0]}), "uniform")
    assert found.mean == pytest.approx(20.0)
    assert found.half_width == pytest.approx(24.8414, abs=1e-4)
    assert found.difference is None
    assert not found.differs


def test_the_difference_by_hand() -> None:
    # +1, +2 and +3: mean 2, deviation 1, 4.302653 / sqrt(3); the means alone would be lost in their own intervals.
    rows = made_up({"uniform": [10.0, 20.0, 30.0], "rota": [11.0, 22.0, 33.0]})
    found = cell(rows, "rota")
    assert found.difference == pytest.approx((2.0, 2.48414), abs=1e-5)
    assert not found.differs  # 2 - 2.48 is below 0
    assert cell(made_up({"uniform": [10.0, 20.0, 30.0], "rota": [12.0, 23.0, 34.0]}), "rota", correction=None).differs


@pytest.mark.parametrize("title", TITLES)
def test_intervals_are_those_of_scipy(title: str) -> None:
    ours, base = [71.5, 68.25, 80.0, 74.0, 69.5], [70.0, 69.0, 75.5, 73.0, 61.0]
    found = cell(made_up({"rota": ours, "uniform": base}), "rota", title, correction=None)
    low, high = stats.t.interval(0.95, 4, loc=sum(ours) / 5, scale=stats.sem(ours))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert found.difference is not None
    mean, half_width = found.difference
    paired = stats.ttest_rel(ours, base)
    low, high = paired.confidence_interval(0.95)
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))
    assert found.p == pytest.approx(paired.pvalue)
    assert found.differs == (paired.pvalue < 0.05)


def test_every_measure_is_read_from_its_own_place() -> None:
    record = row("rota", 0, accuracy=1.0, dissimilarity=2.0, worst10=3.0, local_loss=4.0, participation={"gini": 0.5})
    cells = make_table([record]).cells["rota"]
    assert [cells[title].mean for title in TITLES] == [1.0, 2.0, 3.0, 4.0, 0.5]
    assert list(cells) == TITLES == ["accuracy %", "dissimilarity", "worst 10 %", "local loss", "Gini"]


def test_differences_are_paired_by_seed_in_whatever_order_the_rows_come() -> None:
    rows = made_up({"uniform": [10.0, 20.0, 60.0], "rota": [11.0, 22.0, 63.0]})
    shuffled = [rows[i] for i in (4, 2, 0, 5, 1, 3)]
    again = make_table(shuffled)
    assert again.cells["rota"]["accuracy %"].difference == pytest.approx((2.0, 2.48414), abs=1e-5)
    for name, cells in make_table(rows).cells.items():
        assert repr(again.cells[name]) == repr(cells)  # cells with nan are unequal from Python 3.13 on
    assert list(again.cells) == ["rota", "uniform"]  # in the order in which they appear


def test_seeds_need_not_be_0_1_2() -> None:
    rows = [evaluated(name, seed, value) for name, seed, value in [("uniform", 7, 1.0), ("uniform", 3, 2.0)]]
    table = make_table([*rows, evaluated("rota", 3, 5.0), evaluated("rota", 7, 4.0)])
    assert table.seeds == 2
    assert table.cells["rota"]["accuracy %"].difference == (3.0, 0.0)


@pytest.mark.parametrize(
    ("title", "best"),
    [("accuracy %", "high"), ("dissimilarity", "low"), ("worst 10 %", "high"), ("local loss", "low"), ("Gini", "low")],
)
def test_the_best_is_the_most_or_the_least_as_the_measure_says(title: str, best: str) -> None:
    table = make_table(made_up({"low": [1.0, 2.0], "uniform": [3.0, 3.0], "high": [9.0, 4.0]}))
    assert [name for name, cells in table.cells.items() if cells[title].best] == [best]


def test_who_ties_is_best_together() -> None:
    table = make_table(made_up({"a": [1.0, 3.0], "b": [3.0, 1.0], "c": [0.0, 0.0]}))
    assert [name for name, cells in table.cells.items() if cells["accuracy %"].best] == ["a", "b"]


def test_who_looks_the_same_is_best_together() -> None:
    values = {"a": [80.04], "b": [79.96], "c": [79.94]}  # 80.0, 80.0 and 79.9 with one digit
    table = make_table(made_up(values))
    assert [name for name, cells in table.cells.items() if cells["accuracy %"].best] == ["a", "b"]
    assert [name for name, cells in table.cells.items() if cells["Gini"].best] == ["c"]  # which shows two digits


def test_without_the_baseline_there_are_no_differences() -> None:
    table = make_table(made_up({"rota": [1.0, 2.0], "divfl": [3.0, 4.0]}))
    assert table.baseline is None
    for cells in table.cells.values():
        assert all(found.difference is None and not found.differs for found in cells.values())


def test_any_selector_can_be_the_baseline() -> None:
    rows = made_up({"uniform": [1.0, 2.0], "divfl": [3.0, 4.0]})
    table = make_table(rows, baseline="divfl")
    assert table.baseline == "divfl"
    assert table.cells["uniform"]["Gini"].difference == (-2.0, 0.0)
    assert table.cells["divfl"]["Gini"].difference is None


def test_one_seed_has_a_mean_and_no_interval() -> None:
    table = make_table(made_up({"uniform": [1.0], "rota": [3.0]}))
    assert table.seeds == 1
    found = table.cells["rota"]["accuracy %"]
    assert (found.mean, math.isnan(found.half_width), found.best) == (3.0, True, True)
    assert found.difference == pytest.approx((2.0, math.nan), nan_ok=True)
    assert not found.differs


def test_the_last_evaluated_record_counts_and_those_without_evaluation_do_not() -> None:
    rows = []
    for seed, value in enumerate([10.0, 20.0]):
        rows += [row("rota", seed, 0), evaluated("rota", seed, 99.0, 1), row("rota", seed, 2)]
        rows += [evaluated("rota", seed, value, 3), row("rota", seed, 4, local_loss=77.0)]
    table = make_table(rows)
    assert table.round == 4  # rounds played by then
    assert [table.cells["rota"][title].mean for title in TITLES] == [15.0] * 5
    assert {seed: found["round"] for seed, found in final_rows(rows)["rota"].items()} == {0: 3, 1: 3}


@pytest.mark.parametrize("rows", [[], [row("rota", 0), row("rota", 1)]])
def test_refuses_a_run_without_an_evaluation(rows: list[dict[str, Any]]) -> None:
    assert final_rows(rows) == {}
    with pytest.raises(ValueError, match=r"^records: no round was evaluated; .* evaluate_every=1"):
        make_table(rows)


def test_a_cohort_of_which_nobody_replied_has_no_loss_rather_than_the_best() -> None:
    values = {"uniform": [1.0, 2.0, 4.0], "rota": [2.0, 3.0, 9.0], "divfl": [5.0, 6.0, 7.0]}
    rows = made_up(values)
    rows[5]["local_loss"] = None  # rota, seed 2
    for divfl in rows[6:]:
        divfl["local_loss"] = None
    cells = {name: found["local loss"] for name, found in make_table(rows).cells.items()}
    assert cells["rota"].mean == 2.5
    assert cells["rota"].difference == (1.0, 0.0)  # from seeds 0 and 1
    assert math.isnan(cells["divfl"].mean)
    assert cells["divfl"].difference == pytest.approx((math.nan, math.nan), nan_ok=True)
    assert not cells["divfl"].differs
    assert [name for name, found in cells.items() if found.best] == ["uniform"]
    assert make_table(rows).cells["divfl"]["accuracy %"].mean == 6.0  # nothing else suffers


def test_as_json_there_is_no_nan() -> None:
    rows = made_up({"uniform": [1.0], "rota": [3.0]})
    rows[0]["local_loss"] = None
    found = json.loads(json.dumps(make_table(rows).to_dict(), allow_nan=False))
    assert {key: found[key] for key in ("round", "seeds", "baseline")} == {
        "round": 10,
        "seeds": 1,
        "baseline": "uniform",
    }
    assert list(found["cells"]) == ["uniform", "rota"]
    assert found["cells"]["rota"]["Gini"] == {
        "mean": 3.0,
        "half_width": None,
        "difference": [2.0, None],
        "best": False,
        "p": None,
    }
    assert found["cells"]["rota"]["local loss"]["difference"] == [None, None]
    assert found["cells"]["uniform"]["local loss"] == {
        "mean": None,
        "half_width": None,
        "difference": None,
        "best": False,
        "p": None,
    }


# Names


def test_each_of_the_six_has_a_name_and_ones_own_key_is_left_alone() -> None:
    names = [display_name(key) for key in ("uniform", "power_of_choice", "divfl", "subtrunc", "unionfl", "rota")]
    assert names == ["Random", "Power-of-Choice", "DivFL", "SubTrunc", "UnionFL", "Rota"]
    assert [display_name(key) for key in ("subtrunc_0.95", "Uniform", "mine")] == ["subtrunc_0.95", "Uniform", "mine"]


# What a reader should know


def chosen(cohorts: dict[str, list[list[int]]], seeds: int = 2, **more: Any) -> list[dict[str, Any]]:
    """A run in which selectors choose these cohorts round by round, with every seed."""
    rows = [
        row(name, seed, round, cohort=cohort, **more)
        for name, by_round in cohorts.items()
        for seed in range(seeds)
        for round, cohort in enumerate(by_round)
    ]
    measures = {"accuracy": 50.0, "dissimilarity": 5.0, "worst10": 40.0, "participation": {"gini": 0.5}}
    return [found | measures for found in rows]


def test_says_who_chose_the_same_cohorts_in_whatever_order() -> None:
    cohorts = {"uniform": [[0, 1], [2, 3]], "divfl": [[4, 5], [6, 7]], "mine": [[5, 4], [7, 6]]}
    cohorts |= {"subtrunc": [[4, 5], [7, 6]], "rota": [[4, 5], [6, 8]]}
    (note,) = make_table(chosen(cohorts)).notes
    assert note == "DivFL, mine and SubTrunc chose the same cohorts in all 2 rounds of 2 seeds."


def test_each_group_that_chose_the_same_has_its_own_note() -> None:
    found = make_table(chosen({"a": [[0]], "b": [[1]], "c": [[1]], "d": [[0]], "e": [[2]]}, seeds=1)).notes
    assert found == (
        "a and d chose the same cohorts in the only round.",
        "b and c chose the same cohorts in the only round.",
    )


def test_one_cohort_of_one_seed_that_differs_is_enough() -> None:
    rows = chosen({"divfl": [[4, 5]] * 30, "subtrunc": [[4, 5]] * 30}, seeds=1)
    assert make_table(rows).notes == ("DivFL and SubTrunc chose the same cohorts in all 30 rounds.",)
    rows[-1]["cohort"] = [4, 6]
    assert make_table(rows).notes == ()


def test_records_without_cohorts_say_nothing_of_them() -> None:
    rows = chosen({"divfl": [[0]], "subtrunc": [[0]]})
    assert make_table([{key: found[key] for key in found if key != "cohort"} for found in rows]).notes == ()


@pytest.mark.parametrize(("full", "shown"), [(6, "60 %"), (10, "100 %"), (5, None), (0, None)])
def test_says_where_b_was_reached_with_the_first_pick_in_most_rounds(full: int, shown: str | None) -> None:
    rows = chosen({"divfl": [[i] for i in range(10)], "subtrunc": [[i + 1] for i in range(10)]}, seeds=1)
    for found in rows[10:]:
        found["saturated_at"] = 1 if found["round"] < full else 2 if found["round"] % 2 else None
    expected = (
        f"b was reached with the first pick in most rounds of SubTrunc ({shown}), so the loss term hardly chooses"
    )
    assert make_table(rows).notes == ((f"{expected}: try a larger b.",) if shown else ())


def test_only_rounds_that_know_of_saturation_count() -> None:
    rows = chosen({"mine": [[i] for i in range(10)]}, seeds=1)
    rows[0]["saturated_at"] = 1
    (note,) = make_table(rows).notes
    assert "mine (100 %)" in note


def test_a_parameter_that_does_nothing_is_one_line_for_all_who_have_it() -> None:
    cohorts = {f"lam_{i}": [[0, 1]] * 3 for i in range(3)}
    table = make_table(chosen(cohorts, saturated_at=1))
    assert table.notes == (
        "lam_0, lam_1 and lam_2 chose the same cohorts in all 3 rounds of 2 seeds.",
        "b was reached with the first pick in most rounds of lam_0 (100 %), lam_1 (100 %) and lam_2 (100 %), so the "
        "loss term hardly chooses: try a larger b.",
    )
    assert json.loads(json.dumps(table.to_dict()))["notes"] == list(table.notes)


def test_seeds_that_end_earlier_are_no_part_of_the_mean() -> None:
    rows = made_up({"uniform": [10.0, 20.0], "rota": [30.0, 40.0]})
    rows += [{**row, "round": row["round"] + 5, "accuracy": 50.0} for row in rows[:1] + rows[2:]]
    found = make_table(rows)
    assert (found.cells["uniform"]["accuracy %"].mean, found.cells["rota"]["accuracy %"].mean) == (50.0, 50.0)
    assert (found.seeds, found.fewest_seeds) == (2, 1)
    assert f"Random is without seed 1, which ends before round {found.round}." in found.notes
    alone = make_table([*rows[:2], *rows[5:]])
    assert "Evaluated last after different numbers of rounds: Random after 10 and Rota after 15." in alone.notes
