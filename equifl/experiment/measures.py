"""Measures: the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from equifl import metrics
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


def _of_scores(formula: Callable[[Any], float], score: Score) -> Callable[[Row], float | None]:
    """A formula of the clients' scores, accuracies in percent; on Flower some are not known."""

    def read(row: Row) -> float | None:
        known = [value for value in row.get(score.of_clients, ()) if value is not None]
        return formula(known) if known else None

    return read


def _of_losses(formula: Callable[[Any], float]) -> Callable[[Row], float | None]:
    """A formula of the clients' training losses at the evaluated model, if they are recorded."""
    return lambda row: formula(row["client_loss"]) if row.get("client_loss") else None


def expected_accuracy(row: Row) -> list[float] | None:
    """The clients' accuracies without sampling noise, in percent: their classes scored on the whole test set.

    None of a record of an earlier version or of Flower, which lacks what they are made of (see `with_test_classes`).
    """
    if not row.get("test_classes") or not row.get("class_accuracy"):
        return None
    by_class = np.array(row["class_accuracy"], np.float64)
    found: list[float] = metrics.expected_values(row["test_classes"], by_class).tolist()
    return found


def _expected(formula: Callable[[Any], float]) -> Callable[[Row], float | None]:
    """A formula of the clients' accuracies without sampling noise."""

    def read(row: Row) -> float | None:
        found = expected_accuracy(row)
        return None if found is None else formula(found)

    return read


def _noise_floor(row: Row) -> float | None:
    """The dissimilarity that sampling noise alone would give, in points."""
    if not row.get("test_classes"):
        return None
    sizes = [sum(counts) for counts in row["test_classes"]]
    return 100 * metrics.noise_floor(min(1.0, max(0.0, row["accuracy"] / 100)), sizes)


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
    """What may be asked for; shares and sampling noise are of accuracies alone."""
    digits = score.digits
    of_accuracies = (
        Measure("jain", "Jain", lambda row: row["jain"], True, 3),
        Measure("angle", "angle", _of_scores(metrics.angle, score), False, 2),
        Measure("accuracy_entropy", "entropy", _of_scores(metrics.value_entropy, score), True, 4),
        Measure("expected_dissimilarity", "without noise", _expected(metrics.dissimilarity), False),
        Measure("expected_worst10", "worst 10 % without noise", _expected(metrics.worst), True),
        Measure("noise_floor", "noise floor", _noise_floor, False),
    )
    return (
        Measure("best10", "best 10 %", lambda row: row["best10"], True, digits),
        Measure("std", "deviation", lambda row: row["std"], False, digits),
        Measure("variance", "variance", _of_scores(metrics.variance, score), False, digits),
        Measure("gap", "best - worst", lambda row: row["gap"], False, digits),
        Measure("minimum", "minimum", _of_scores(partial(metrics.quantile, share=0.0), score), True, digits),
        Measure("q10", "10 % quantile", _of_scores(partial(metrics.quantile, share=0.1), score), True, digits),
        Measure("q20", "20 % quantile", _of_scores(partial(metrics.quantile, share=0.2), score), True, digits),
        *(of_accuracies if score.percent else ()),
        Measure("global_loss", "global loss", lambda row: row.get("global_loss"), False, 2),
        Measure("loss_std", "loss deviation", _of_losses(metrics.std), False, 2),
        Measure("loss_worst10", "worst 10 % loss", _of_losses(metrics.best), False, 2),
        Measure("never", "never selected", lambda row: row["participation"]["never"], False),
        Measure("longest_wait", "longest wait", lambda row: row["participation"]["longest_wait"], False),
    )


MEASURES = usual_measures(ACCURACY)


def chosen_measures(names: Iterable[str] | None, score: Score = ACCURACY) -> tuple[Measure, ...]:
    """Measures by their names; None = the usual five."""
    if names is None:
        return usual_measures(score)
    known = {measure.name: measure for measure in (*usual_measures(score), *more_measures(score))}
    require("measures", names, not isinstance(names, str), f"a list of names, [{names!r}]")
    chosen = list(names)
    require("measures", chosen, len(chosen) > 0, ", ".join(known))
    for name in chosen:
        require("measures", name, name in known, ", ".join(known))
    return tuple(known[name] for name in chosen)


def with_test_classes(rows: Iterable[Row]) -> Iterator[Row]:
    """The records, the evaluated ones with `test_classes`, which only the first record of a run has in a folder."""
    known: dict[tuple[str, int], Any] = {}
    for row in rows:
        run = row["selector"], row["seed"]
        if "test_classes" in row:
            known[run] = row["test_classes"]
        yield {**row, "test_classes": known[run]} if "accuracy" in row and run in known else row
