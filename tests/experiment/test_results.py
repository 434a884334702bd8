import json
from pathlib import Path
from typing import Any

import pytest

from equifl import load_results
from equifl.experiment.results import Results, join
from equifl.experiment.run_folder import RunFolder
from tests.report.example_records import MADE_WITH, configuration, records


def example(**more: Any) -> Results:
    config = configuration(**more)
    return Results(config, MADE_WITH, records(config))


def in_folder(path: Path, **more: Any) -> Path:
    config = configuration(**more)
    with RunFolder.open(path, config, MADE_WITH) as folder:
        folder.append(records(config))
    return path


def test_shows_its_table() -> None:
    found = example()
    assert repr(found) == f"Results(synthetic, 6 of 6 rounds)\n{found.table()}"
    assert found.table()._repr_html_() in found._repr_html_()
    nothing = Results(configuration(), MADE_WITH, [])
    assert repr(nothing) == "Results(synthetic, 0 of 6 rounds)"
    assert "no evaluated round yet" in nothing._repr_html_()


def test_a_late_table_is_the_mean_over_the_last_evaluations() -> None:
    found = example(evaluate_every=1, rounds=12)  # 20 clients, 4 a round: five evaluations
    values = [row["accuracy"] for row in found.records if row["selector"] == "rota" and row["round"] >= 7]
    late = found.table(at="late")
    assert late.averaged == 5
    assert late.cells["rota"]["accuracy %"].mean == pytest.approx(sum(values) / len(values))
    assert "over the last 5 evaluations" in late.to_markdown()
    assert found.table().averaged == 1


def test_a_late_table_leaves_the_first_half_of_a_run_out() -> None:
    found = example(evaluate_every=1, rounds=6)
    values = [row["accuracy"] for row in found.records if row["selector"] == "rota" and row["round"] >= 3]
    late = found.table(at="late")
    assert late.averaged == 3
    assert late.cells["rota"]["accuracy %"].mean == pytest.approx(sum(values) / len(values))


def test_a_matched_table_compares_runs_where_they_are_equally_accurate() -> None:
    found = example(evaluate_every=1, rounds=8)
    made = found.table(at="matched")
    best: dict[tuple[str, int], float] = {}
    for row in found.records:
        run = row["selector"], row["seed"]
        best[run] = max(best.get(run, 0.0), row["accuracy"])
    assert made.matched == min(best.values())
    assert f"where each run first has a score of {made.matched:.4g}" in made.to_markdown()
    for cells in made.cells.values():
        assert cells["accuracy %"].mean >= made.matched - 1e-9


@pytest.mark.parametrize("shown", ["Rota", "rota"])
def test_a_baseline_may_be_named_as_tables_show_it(shown: str) -> None:
    assert example().table(baseline=shown).baseline == "rota"
    swept = example(selectors={"rota[lam=1]": {}, "divfl[lam=1]": {}, "rota[lam=2]": {}})
    assert swept.table(baseline=shown).cells["divfl[lam=1]"]["Gini"].difference is not None


def test_every_data_frame_has_the_parameters_of_a_sweep_behind_the_selector() -> None:
    found = example(selectors={"rota[lam=1]": {}, "uniform": {}, "rota[train.steps=[2, 3]]": {}})
    for frame in (found.to_pandas(), found.final(), found.clients(), found.cohorts(), found.to_target(accuracy=1.5)):
        names = list(frame.columns)
        assert names[names.index("selector") + 1 :][:2] == ["lam", "train.steps"]
        assert set(frame[frame.selector == "rota[lam=1]"].lam) == {1}
        assert frame[frame.selector == "uniform"].lam.isna().all()
        assert frame[frame.selector == "rota[train.steps=[2, 3]]"]["train.steps"].iloc[0] == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "nobody"}, "baseline: 'nobody' is not allowed; allowed: uniform, subtrunc, rota, or None"),
        ({"measures": ["accurracy"]}, "measures: 'accurracy' is not allowed; allowed: accuracy, dissimilarity, "),
        ({"correction": "bonferroni"}, "correction: 'bonferroni' is not allowed; allowed: \"holm\" or None"),
        ({"at": "first"}, 'at: \'first\' is not allowed; allowed: "last", "late" or "matched"'),
    ],
)
def test_refuses_options_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        example().table(**options)
    assert str(error.value).startswith(message)


def test_frames_hold_what_the_records_hold() -> None:
    found = example()
    by_round = found.to_pandas()
    assert len(by_round) == len(found.records) == 6 * 3 * 3
    assert by_round["participation.gini"].notna().sum() == 3 * 3 * 3
    assert not {"cohort", "client_accuracy"} & set(by_round)
    final = found.final()
    assert {"gini", "never", "longest_wait", "variance", "q10"} <= set(final)  # the names of measures
    assert "participation.gini" not in final
    for name in ("gini", "longest_wait"):
        means = final.groupby("selector")[name].mean()
        [title] = found.table(measures=[name]).cells["rota"]
        assert means["rota"] == pytest.approx(found.table(measures=[name]).cells["rota"][title].mean)
    assert len(final) == 9
    assert set(final["round"]) == {5}
    mean = final[final["selector"] == "rota"]["accuracy"].mean()
    assert mean == pytest.approx(found.table().cells["rota"]["accuracy %"].mean)


def test_clients_and_cohorts_agree_with_the_records() -> None:
    found = example()
    clients, cohorts = found.clients(), found.cohorts()
    assert len(clients) == 3 * 3 * 20
    assert clients["times_selected"].sum() == len(cohorts) == 6 * 3 * 3 * 4
    final = next(row for row in reversed(found.records) if row["selector"] == "rota" and row["seed"] == 1)
    mine = clients[(clients["selector"] == "rota") & (clients["seed"] == 1)]
    assert mine["accuracy"].tolist() == final["client_accuracy"]
    assert mine["longest_wait"].max() == final["participation"]["longest_wait"]
    one = cohorts[(cohorts["selector"] == "rota") & (cohorts["seed"] == 1) & (cohorts["round"] == 5)]
    assert one["client"].tolist() == final["cohort"]


def test_what_it_takes_to_reach_a_target() -> None:
    found = example(seeds=[0, 1])
    for row in found.records:
        if "accuracy" in row:
            row["accuracy"] = 90.0 if row["round"] >= 3 and (row["selector"], row["seed"]) != ("rota", 1) else 10.0
    table = found.to_target(accuracy=90).set_index("selector")
    assert table["reached"].to_dict() == {"uniform": 1.0, "subtrunc": 1.0, "rota": 0.5}
    assert set(table["rounds"]) == {4.0}
    assert set(table["bytes"]) == {4 * 1800.0}
    assert "seconds" not in table  # the records have none
    assert set(found.to_target(accuracy=101)["reached"]) == {0.0}
    with pytest.raises(ValueError, match=r"accuracy: 0.9 is a fraction; accuracy is in percent: did you mean 90\?"):
        found.to_target(accuracy=0.9)
    assert set(found.to_target(std=0.9)["reached"]) == {0.0}  # in points, of which there may be so few
    for wrong in ({}, {"accuracy": 1, "std": 2}, {"speed": 3}, {"accuracy": "high"}):
        with pytest.raises(ValueError):
            found.to_target(**wrong)


def test_less_is_better_for_dissimilarity() -> None:
    found = example(seeds=[0])
    for row in found.records:
        if "accuracy" in row:
            row["dissimilarity"] = 30.0 - row["round"]
    assert set(found.to_target(dissimilarity=27)["rounds"]) == {4.0}  # evaluated after rounds 2, 4 and 6


# Several folders


def test_folders_with_other_seeds_join_as_one_experiment(tmp_path: Path) -> None:
    folders = [in_folder(tmp_path / name, seeds=seeds) for name, seeds in (("a", [0, 1]), ("b", [2, 3, 4]))]
    found = load_results(*folders)
    assert list(found.table().cells) == ["uniform", "subtrunc", "rota"]
    assert found.table().seeds == 5
    assert list(found.parts) == ["a", "b"]
    assert found.rounds_played == 6


def test_folders_with_other_selectors_join_under_their_own_names(tmp_path: Path) -> None:
    folders = [
        in_folder(tmp_path / "a", selectors=("uniform", "rota")),
        in_folder(tmp_path / "b", selectors=("divfl",)),
    ]
    assert list(load_results(*folders).table().cells) == ["uniform", "rota", "divfl"]


def test_names_that_clash_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [in_folder(tmp_path / "x" / "run"), in_folder(tmp_path / "y" / "run")]
    found = load_results(*folders)
    names = ["x/run/uniform", "x/run/subtrunc", "x/run/rota", "y/run/uniform", "y/run/subtrunc", "y/run/rota"]
    assert list(found.table(baseline="x/run/uniform").cells) == names
    assert found.table().baseline is None
    found.report(tmp_path / "both.html")
    assert "y/run/rota" in (tmp_path / "both.html").read_text()


def test_experiments_that_differ_are_told_apart(tmp_path: Path) -> None:
    folders = [in_folder(tmp_path / "a", seeds=[0]), in_folder(tmp_path / "b", seeds=[1], evaluate_every=3)]
    assert list(load_results(*folders).table().cells)[::3] == ["a/uniform", "b/uniform"]


def test_a_name_with_two_meanings_is_told_apart() -> None:
    first, second = (example(selectors=("rota",), seeds=[seed]) for seed in (0, 1))
    second.config["selectors"]["rota"]["passes"] = 3
    assert len(join([first, second]).table().cells) == 2


def test_unfinished_folders_count_in_their_whole_rounds(tmp_path: Path) -> None:
    config = configuration(seeds=[7])
    with RunFolder.open(tmp_path / "b", config, MADE_WITH) as folder:
        folder.append(records(config)[:-1])
    found = load_results(in_folder(tmp_path / "a"), tmp_path / "b")
    assert max(row["round"] for row in found.records if row["seed"] == 7) == 4


def test_at_least_one_folder() -> None:
    with pytest.raises(ValueError, match="folders: "):
        load_results()
    with pytest.raises(ValueError, match=r"folders: \['a'\] is not allowed; allowed: paths, one after the other"):
        load_results(["a"])  # type: ignore[arg-type]


def test_the_dictionary_is_json() -> None:
    found = example().table().to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["measures"] == ["accuracy", "dissimilarity", "worst10", "local_loss", "gini"]
    assert found["correction"] == "holm"
