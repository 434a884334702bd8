"""Tasks: the loss that training minimises, and the score of each test example.

A task is a value that engines receive. A new one touches no engine's training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from equifl._numerics.checks import brief, shown
from equifl.experiment.named_object import named_object
from equifl.experiment.task_table import TaskFunction, TaskTable
from equifl.extras import needed_by
from equifl.sim.data.dataset import Dataset

with needed_by("equifl.sim"):
    import torch
    from torch import Tensor, nn
    from torch.nn.functional import cross_entropy

_OWN = "a function of outputs and targets, or a torch.nn.Module object, that returns one number for each example"


@dataclass(frozen=True)
class Task:
    """A loss and a score: functions of outputs (B, ...) and targets (B, ...) that return one number an example (B,).

    Args:
        name: its name in messages.
        loss: minimised by training.
        score: what evaluation reports, more is better; for classification whether the class is right.
        recordable: whether a GPU may record a step with this loss and replay it: it does the same operations each
            time, whatever the numbers are. Of a user's loss nobody knows.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]
    recordable: bool = True


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=-1) == targets


def _loss_of_positions(outputs: Tensor, targets: Tensor) -> Tensor:
    each = cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return each.view_as(targets).mean(dim=1)


def _share_of_positions(outputs: Tensor, targets: Tensor) -> Tensor:
    return _right(outputs, targets).to(outputs.dtype).mean(dim=1)


def _squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """(B, targets of an example)."""
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1)


def _mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return _squared_errors(outputs, targets).mean(dim=1)


def _negative_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return -_mean_squared_error(outputs, targets)


def _r2(variance: tuple[float, ...], outputs: Tensor, targets: Tensor) -> Tensor:
    """1 - (y - f(x))^2 / variance of all test targets: its mean over all of them is R^2."""
    return 1 - (_squared_errors(outputs, targets) / targets.new_tensor(variance)).mean(dim=1)


CLASSIFICATION = Task("classification", loss=partial(cross_entropy, reduction="none"), score=_right)
NEXT_CHARACTER = Task("next_character", loss=_loss_of_positions, score=_share_of_positions)


def make_task(table: TaskTable, dataset: Dataset, functions: Mapping[str, TaskFunction] | None = None) -> Task:
    """The task that a configuration asks for, on these data; a ValueError if their targets are of another kind.

    Args:
        table: the task of the configuration.
        dataset: the data.
        functions: the `loss` and `score` that cannot be imported by the names they have in the table.
    """
    fits = "regression" if dataset.classes is None else "next_character" if dataset.y_train.ndim > 1 else None
    if table.name != fits and not (table.name is None and fits == "next_character"):
        kinds = {"regression": "numbers", "next_character": "a class at every position", None: "a class each"}
        asked, wanted = table.name or "classification", fits or "classification"
        raise ValueError(
            f"task.name: {asked!r} does not fit {dataset.name}, whose targets are {kinds[fits]}; write "
            f"task = {wanted!r}"
        )
    task = NEXT_CHARACTER if fits else CLASSIFICATION
    if fits == "regression":
        task = _regression(table, dataset)
    for part in ("loss", "score"):
        name = getattr(table, part)
        if name is not None and ":" in name:
            own: Any = (functions or {}).get(part) or named_object(f"task.{part}", name, _is_function, _OWN)
            task = replace(task, name=f"{task.name} by {name}", **{part: own})
            if part == "loss":
                task = replace(task, recordable=False)
    return task


def _regression(table: TaskTable, dataset: Dataset) -> Task:
    if table.score == "neg_squared_error":
        return Task("regression", _mean_squared_error, _negative_squared_error)
    variance = np.atleast_1d(dataset.y_test.var(axis=0, dtype=np.float64))
    if table.score is None and not (variance > 0).all():
        raise ValueError(
            "task.score: R² is not defined, as all test targets are the same; allowed: neg_squared_error, or others"
        )
    return Task("regression", _mean_squared_error, partial(_r2, tuple(variance.tolist())))


def output_shapes(table: TaskTable, dataset: Dataset) -> tuple[tuple[int, ...], ...] | None:
    """The shapes that a model's output for one example may have; None = any that one's own loss and score take."""
    if table.loss is not None and ":" in (table.score or ""):
        return None
    if dataset.classes is not None:
        return ((*dataset.y_train.shape[1:], dataset.classes),)
    return ((1,), ()) if dataset.y_train.ndim == 1 else (dataset.y_train.shape[1:],)


def require_usable(table: TaskTable, task: Task, module: nn.Module, dataset: Dataset) -> None:
    """Refuse a loss or score of one's own that does not give one number for each example, whatever else is there."""
    x, y = (torch.from_numpy(array[:6]) for array in (dataset.x_train, dataset.y_train))
    outputs = module(x)
    for part in ("loss", "score"):
        name = getattr(table, part)
        if name is None or ":" not in name:
            continue
        function = getattr(task, part)
        try:
            found, alone = function(outputs, y), function(outputs[:1], y[:1])
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"task.{part}: {shown(name)} fails on outputs of shape {tuple(outputs.shape)} and targets of shape "
                f"{tuple(y.shape)} ({brief(error)}); expected: {_OWN}"
            ) from None
        if not isinstance(found, Tensor) or tuple(found.shape) != (len(y),):
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"task.{part}: {shown(name)} returned {got} for {len(y)} examples; expected: {_OWN} (PyTorch's own do "
                "with reduction='none')"
            )
        if not torch.allclose(found[:1].double(), alone.double(), rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ValueError(f"task.{part}: {shown(name)} depends on the other examples of a batch; expected: {_OWN}")
        if part == "loss" and not found.requires_grad:
            raise ValueError(f"task.loss: {shown(name)} has no gradient; expected: {_OWN}, computed from the outputs")


def _is_function(found: Any) -> bool:
    return isinstance(found, FunctionType | nn.Module | partial)
