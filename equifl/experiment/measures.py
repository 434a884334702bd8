"""Measures: the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from equifl._numerics.checks import require
from equifl.experiment.task_table import ACCURACY, Score

Row = Mapping[str, Any]  # a record


@dataclass(frozen=True)
class Measure:
    """One column: its name, its title, how to read it from a record, and whether larger is better."""

    name: str
    title: str
    read: Callable[[Row], float | None]
    more_is_better: bool
    digits: int = 1

    def shown(self, value: float, sign: str = "") -> str:
        """The value with the measure's digits; very large ones in exponential form."""
        return f"{value:{sign}.{self.digits}f}" if abs(value) < 1e4 else f"{value:{sign}.0e}"


def usual_measures(score: Score) -> tuple[Measure, ...]:
    """The usual five: the score, how evenly clients are served and take part, and the loss of training."""
    return (
        Measure(score.key, score.title, lambda row: row[score.key], True, score.digits),
        Measure("dissimilarity", "dissimilarity", lambda row: row["dissimilarity"], False, score.digits),
        Measure("worst10", "worst 10 %", lambda row: row["worst10"], True, score.digits),
        Measure("local_loss", "local loss", lambda row: row["local_loss"], False, 2),
        Measure("gini", "Gini", lambda row: row["participation"]["gini"], False, 2),
    )


def more_measures(score: Score) -> tuple[Measure, ...]:
    """What may be asked for; Jain's index is of accuracies alone, which are never negative."""
    jain = (Measure("jain", "Jain", lambda row: row["jain"], True, 3),)
    return (
        Measure("best10", "best 10 %", lambda row: row["best10"], True, score.digits),
        Measure("std", "deviation", lambda row: row["std"], False, score.digits),
        Measure("gap", "best - worst", lambda row: row["gap"], False, score.digits),
        *(jain if score.percent else ()),
        Measure("never", "never selected", lambda row: row["participation"]["never"], False),
        Measure("longest_wait", "longest wait", lambda row: row["participation"]["longest_wait"], False),
    )


MEASURES = usual_measures(ACCURACY)


def chosen_measures(names: Iterable[str] | None, score: Score = ACCURACY) -> tuple[Measure, ...]:
    """Measures by their names; None = the usual five."""
    if names is None:
        return usual_measures(score)
    known = {measure.name: measure for measure in (*usual_measures(score), *more_measures(score))}
    for name in names:
        require("measures", name, name in known, ", ".join(known))
    return tuple(known[name] for name in names)
