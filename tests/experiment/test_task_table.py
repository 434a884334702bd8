from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.experiment.task_table import ACCURACY, TaskTable, score_of, task_with_names


def a_loss() -> None: ...


def test_a_name_alone_stands_for_the_table(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text('task = "regression"\n')
    assert Config.load(tmp_path / "file.toml").task == TaskTable(name="regression")
    assert Config.load(None, ["task=regression"]) == Config.load(None, ["task.name=regression"])
    assert Config.from_table({"task": "regression"}).task.name == "regression"


def test_what_equals_the_default_is_the_default() -> None:
    """So that a folder from before there were tasks goes on."""
    assert TaskTable(name="classification") == TaskTable()
    assert TaskTable(name="regression", score="r2") == TaskTable(name="regression")
    assert set(Config().as_dict()["task"].values()) == {None}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["task=clustering"],
            "task.name: 'clustering' is not known; allowed: classification, regression, next_character",
        ),
        (["task=regresion"], r"task.name: 'regresion' is not known; did you mean 'regression'\?"),
        (
            ["task.loss=hinge"],
            "task.loss: 'hinge' is not allowed; allowed: package.module:name, a function of outputs",
        ),
        (["task.score=r2"], "task.score: 'r2' is not allowed; allowed: package.module:name"),
        (["task.name=regression", "task.score=mse"], "task.score: 'mse' is not allowed; allowed: r2, neg_squared_er"),
        (["task.los=a:b"], "task.los: unknown key; did you mean `loss`"),
        (["task=3"], "task: 3 is not allowed; allowed: a table"),
        (["task.short=a"], "task.short: unknown key"),
    ],
)
def test_what_is_no_task_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.load(None, overrides)


@pytest.mark.parametrize(
    ("task", "title", "key"),
    [
        ({}, "accuracy %", "accuracy"),
        ({"name": "next_character"}, "accuracy %", "accuracy"),
        ({"loss": "mine:focal"}, "accuracy %", "accuracy"),
        ({"name": "regression"}, "R²", "score"),
        ({"name": "regression", "score": "neg_squared_error"}, "neg. squared error", "score"),
        ({"score": "mine.scores:top5"}, "top5", "score"),
    ],
)
def test_the_configuration_says_what_the_score_is(task: dict[str, str], title: str, key: str) -> None:
    score = score_of(Config.from_table({"task": task}).as_dict())
    assert (score.title, score.key, score.percent) == (title, key, key == "accuracy")


def test_a_folder_without_tasks_has_accuracies() -> None:
    assert score_of({"rounds": 3}) == score_of({"task": None}) == ACCURACY


def test_functions_are_named() -> None:
    assert task_with_names({"loss": a_loss}) == ({"loss": "tests.experiment.test_task_table:a_loss"}, {})
    assert task_with_names("regression") == ({"name": "regression"}, {})


def test_functions_without_a_name_are_kept_beside_the_table() -> None:
    def nearly(outputs: Any, targets: Any) -> Any:
        return outputs

    for function, title in ((nearly, "nearly"), (lambda outputs, targets: outputs, "score")):
        table, functions = task_with_names({"score": function})
        assert functions == {"score": function}
        assert score_of({"task": table}).title == title
    inner = type("Inner", (), {"__call__": a_loss})
    with pytest.raises(ValueError, match=r"task.loss: 'Inner' is not allowed; allowed: a function"):
        task_with_names({"loss": inner})
