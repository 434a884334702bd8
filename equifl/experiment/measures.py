"""Measures: the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from equifl._numerics.checks import require

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


MEASURES = (
    Measure("accuracy", "accuracy %", lambda row: row["accuracy"], True),
    Measure("dissimilarity", "dissimilarity", lambda row: row["dissimilarity"], False),
    Measure("worst10", "worst 10 %", lambda row: row["worst10"], True),
    Measure("local_loss", "local loss", lambda row: row["local_loss"], False, 2),
    Measure("gini", "Gini", lambda row: row["participation"]["gini"], False, 2),
)
MORE_MEASURES = (
    Measure("best10", "best 10 %", lambda row: row["best10"], True),
    Measure("std", "deviation", lambda row: row["std"], False),
    Measure("gap", "best - worst", lambda row: row["gap"], False),
    Measure("jain", "Jain", lambda row: row["jain"], True, 3),
    Measure("never", "never selected", lambda row: row["participation"]["never"], False),
    Measure("longest_wait", "longest wait", lambda row: row["participation"]["longest_wait"], False),
)


def chosen_measures(names: Iterable[str] | None) -> tuple[Measure, ...]:
    """Measures by their names; None = the usual five."""
    if names is None:
        return MEASURES
    known = {measure.name: measure for measure in (*MEASURES, *MORE_MEASURES)}
    for name in names:
        require("measures", name, name in known, ", ".join(known))
    return tuple(known[name] for name in names)
