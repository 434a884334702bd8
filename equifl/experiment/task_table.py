"""What is learnt, as a configuration says it, and what its score is called in records, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from equifl._numerics.checks import known, require
from equifl.experiment.named_object import importable_name, own_name

TaskFunction: TypeAlias = Callable[[Any, Any], Any]  # of outputs and targets: a number for each example

TASKS = ("classification", "regression", "next_character")
REGRESSION_SCORES: Mapping[str, str] = {"r2": "R²", "neg_squared_error": "neg. squared error"}  # and their titles

_R2 = "R²: 1 - mean squared error / variance of all test targets, for every client with the same variance."


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """What is learnt: the loss that clients minimise, and the score of an example; a name alone stands for the table.

    `name`: classification, regression, or next_character, a class at every position; None = as the targets are.
    `loss`: a function of your own, as "package.module:name": outputs and targets to a number for each example.
    `score`: of regression "r2" or "neg_squared_error"; or a function of your own, as for `loss`, where more is better.
    """

    short: ClassVar[str] = "name"

    name: str | None = None
    loss: str | None = None
    score: str | None = None

    def __post_init__(self) -> None:
        known("task.name", [] if self.name is None else [self.name], TASKS)
        if self.name == "classification":
            object.__setattr__(self, "name", None)  # which equals the default, also in older folders
        if self.name == "regression" and self.score == "r2":
            object.__setattr__(self, "score", None)
        own = "package.module:name, a function of outputs and targets"
        require("task.loss", self.loss, self.loss is None or ":" in self.loss, own)
        ours = REGRESSION_SCORES if self.name == "regression" else {}
        right = self.score is None or self.score in ours or ":" in self.score
        require("task.score", self.score, right, ", ".join([*ours, own]))


def task_with_names(task: Any) -> tuple[Any, dict[str, TaskFunction]]:
    """A task as a file has it: a name as a table, and functions of one's own by their names.

    The second are those that cannot be imported by their name, such as a lambda.
    """
    table = {"name": task} if isinstance(task, str) else task
    if not isinstance(table, Mapping):
        return table, {}  # and refused as any wrong type
    found, unnamed = dict(table), dict[str, TaskFunction]()
    for part in ("loss", "score"):
        if callable(found.get(part)):
            name = importable_name(found[part])
            if not name:
                require(f"task.{part}", own_name(found[part]), not isinstance(found[part], type), "a function")
                name, unnamed[part] = f"{found[part].__module__}:{own_name(found[part])}", found[part]
            found[part] = name
    return found, unnamed


@dataclass(frozen=True)
class Score:
    """What evaluation reports of a model: accuracy in percent, or another score as it is; more is better.

    Args:
        title: at the head of a column.
        percent: whether it is an accuracy, recorded from 0 to 100.
    """

    title: str
    percent: bool

    @property
    def key(self) -> str:
        """Its name in records, measures and data frames."""
        return "accuracy" if self.percent else "score"

    @property
    def of_clients(self) -> str:
        """The name of the clients' own in records."""
        return f"client_{self.key}"

    @property
    def word(self) -> str:
        """Its name in a sentence."""
        return "accuracy" if self.percent else self.title

    @property
    def axis(self) -> str:
        """Its name at an axis."""
        return "accuracy, %" if self.percent else self.title

    @property
    def about(self) -> str:
        """What it is, in a sentence, where its name does not say it of a single client."""
        return _R2 if self.title == REGRESSION_SCORES["r2"] and not self.percent else ""

    @property
    def digits(self) -> int:
        """Decimal places that are shown."""
        return 1 if self.percent else 3


ACCURACY = Score("accuracy %", percent=True)


def score_of(config: Mapping[str, Any]) -> Score:
    """The score of an experiment, from its configuration as plain values; one without a task is of accuracies.

    >>> score_of({"task": {"name": "regression"}}).title, score_of({}).title
    ('R²', 'accuracy %')
    """
    task = config.get("task") or {}
    score = task.get("score")
    if score is None:
        return Score(REGRESSION_SCORES["r2"], percent=False) if task.get("name") == "regression" else ACCURACY
    own = score.rpartition(":")[2].rpartition(".")[2]  # of a function within another its own name
    return Score("score" if own == "<lambda>" else REGRESSION_SCORES.get(score, own), percent=False)


NOT_EVALUATED = (
    "records: no round was evaluated; wait for the first evaluation, or, on Flower or NVFlare, let clients send their "
    "accuracy, or say what they call it (accuracy='...'; on NVFlare evaluate_every=1 asks for it)"
)


def is_evaluated(record: Mapping[str, Any]) -> bool:
    """Whether a round was evaluated, by its record."""
    return ACCURACY.key in record or "score" in record
