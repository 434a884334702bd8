import json
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.experiment.sweep import baseline_of, load_points, parameters_of, parse, points, sweep_folders

TINY = ["rounds=2", "clients=10", "per_round=2", "seeds=[0]", "train.model=logistic", "train.steps=1"]


def made(**sweep: Any) -> dict[str, Config]:
    return load_points(None, TINY, {key.replace("__", "."): values for key, values in sweep.items()})


def test_parameters_of_a_selector_become_selectors_in_its_place() -> None:
    (config,) = made(selectors__subtrunc__lam=[0, 0.5], selectors__subtrunc__b=[1.5]).values()
    names = ["uniform", "power_of_choice", "divfl", "subtrunc[lam=0, b=1.5]", "subtrunc[lam=0.5, b=1.5]", "unionfl"]
    assert list(config.selectors) == [*names, "rota"]
    assert config.selectors["subtrunc[lam=0.5, b=1.5]"] == {"class": "subtrunc", "lam": 0.5, "b": 1.5, "sample": 10}


def test_anything_else_becomes_experiments_of_all_combinations() -> None:
    found = made(train__lr=[0.1, 0.2], data__partition__kind=["iid", "classes"])
    assert list(found) == [
        "train.lr=0.1, data.partition.kind=iid",
        "train.lr=0.1, data.partition.kind=classes",
        "train.lr=0.2, data.partition.kind=iid",
        "train.lr=0.2, data.partition.kind=classes",
    ]
    assert [config.train.lr for config in found.values()] == [0.1, 0.1, 0.2, 0.2]
    assert found["train.lr=0.1, data.partition.kind=iid"].data.partition.kind == "iid"


@pytest.mark.parametrize("values", [[[30], [30, 45]], ["a, b=c", "1", 1, "[x]", 'say "no"', "0.5x", "true"]])
def test_values_of_any_form_stay_parameters(values: list[Any]) -> None:
    names = list(points(lambda more: Config.load(None, TINY), {"train.model": values, "train.lr": [1]}))
    assert [parameters_of(f"rota[{name}]") for name in names] == [{"train.model": v, "train.lr": 1} for v in values]
    others = [f"uniform[{name}]" for name in names]
    assert [baseline_of(f"rota[{name}]", "uniform", others) for name in names] == others


def test_a_sweep_that_changes_the_score_is_refused_before_anything_is_played() -> None:
    message = "sweep: task.name gives different scores (accuracy %, R²); sweep experiments of one score"
    with pytest.raises(ValueError) as error:
        made(task__name=["classification", "regression"], train__lr=[0.1, 0.2])
    assert str(error.value) == message
    assert len(made(task__loss=["a:b", "a:c"])) == 2  # both of accuracies


def test_without_a_sweep_there_is_one_experiment_without_a_name() -> None:
    assert made() == {"": Config.load(None, TINY)}


def test_a_file_may_hold_the_sweep_in_either_form(tmp_path: Path) -> None:
    forms = ['[sweep]\n"train.lr" = [0.1, 0.2]\n"selectors.power_of_choice.candidates" = [6, 7]\n']
    forms += ["[sweep.train]\nlr = [0.1, 0.2]\n[sweep.selectors.power_of_choice]\ncandidates = [6, 7]\n"]
    found = []
    for number, text in enumerate(forms):
        path = tmp_path / f"{number}.toml"
        path.write_text(f"rounds = 2\n{text}")
        found.append(load_points(path))
    assert found[0] == found[1]
    assert list(found[0]) == ["train.lr=0.1", "train.lr=0.2"]
    assert "power_of_choice[candidates=7]" in found[0]["train.lr=0.1"].selectors
    assert load_points(tmp_path / "0.toml", (), {"train.lr": [0.7]}).keys() == {"train.lr=0.7"}  # the last word


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"train.lr": []}, "sweep.train.lr: [] is not allowed; allowed: a list of values"),
        ({"train.lr": 0.1}, "sweep.train.lr: 0.1 is not allowed; allowed: a list of values"),
        ({"train.lr": [1, 1]}, "sweep.train.lr: [1, 1] is not allowed; allowed: different values"),
        ({"train.lrr": [1]}, "train.lrr: unknown key; did you mean `lr`?"),
        ({"seeds": [1]}, "sweep: 'seeds' is not allowed"),
        ({"selectors.rota": [1]}, "sweep: 'selectors.rota' is not allowed; allowed: selectors.NAME.PARAMETER"),
        (
            {"selectors.power_of_choise.candidates": [1]},
            "sweep.selectors.power_of_choise.candidates: unknown selector `power_of_choise`; did you mean",
        ),
        (
            {"selectors.power_of_choice.candidate": [1]},
            "selectors.power_of_choice[candidate=1].candidate: unknown key; did you mean `candidates`?",
        ),
    ],
)
def test_refuses_by_name(sweep: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        points(lambda more: Config.load(None, [*TINY, *more]), sweep)
    assert str(error.value).startswith(message)


def test_one_word_among_numbers_does_not_make_them_words() -> None:
    assert parse(["train.lr=0.1,fast", "data.partition=iid,natural"]) == {
        "train.lr": [0.1, "fast"],
        "data.partition": ["iid", "natural"],
    }


@pytest.mark.parametrize("option", ["train.lr", "=1", "train.lr=", "a.b=1"])
def test_the_command_line_form(option: str) -> None:
    if option == "a.b=1":
        with pytest.raises(ValueError, match="once"):
            parse([option, option])
    else:
        with pytest.raises(ValueError, match=r"^--sweep: .*; allowed: key=value,value"):
            parse([option])


@pytest.mark.parametrize("place", ["../other", "..", "/tmp", "a/b", ""])
def test_the_experiments_of_a_sweep_are_within_its_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"points": {"train.lr=1": place}}))
    with pytest.raises(
        ValueError, match=r"sweep.json: is damaged \(points: .* allowed: names of folders in it\); repair"
    ):
        sweep_folders(tmp_path)
