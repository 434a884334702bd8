"""The table at the end of a run: every selector, mean and 95 % interval over seeds, and its difference to Random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from equifl.statistics import excludes_zero, interval, paired

Row = Mapping[str, Any]

DISPLAY_NAMES: Mapping[str, str] = {
    "uniform": "Random",
    "power_of_choice": "Power-of-Choice",
    "divfl": "DivFL",
    "subtrunc": "SubTrunc",
    "unionfl": "UnionFL",
    "rota": "Rota",
}


def display_name(key: str) -> str:
    """The name of a selector in tables and figures: the six have names, other keys stay.

    >>> display_name("uniform"), display_name("subtrunc_0.95")
    ('Random', 'subtrunc_0.95')
    """
    return DISPLAY_NAMES.get(key, key)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(frozen=True)
class Measure:
    """One column: how to read it from a record, and whether larger is better."""

    title: str
    read: Callable[[Row], float]
    more_is_better: bool
    digits: int = 1

    def shown(self, value: float, sign: str = "") -> str:
        """The value with the measure's digits; very large ones in exponential form."""
        return f"{value:{sign}.{self.digits}f}" if abs(value) < 1e4 else f"{value:{sign}.0e}"


MEASURES = (
    Measure("accuracy %", lambda row: row["accuracy"], True),
    Measure("dissimilarity", lambda row: row["dissimilarity"], False),
    Measure("worst 10 %", lambda row: row["worst10"], True),
    Measure("local loss", lambda row: row["local_loss"], False, 2),
    Measure("Gini", lambda row: row["participation"]["gini"], False, 2),
)


@dataclass(frozen=True)
class Cell:
    """A selector's result in one measure; nan where there are too few seeds or replies.

    `difference` is to the baseline, seed by seed, with its own interval; None for the baseline itself. `best` are all
    whose mean is the best with the digits that are shown.
    """

    mean: float
    half_width: float
    difference: tuple[float, float] | None
    best: bool

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.difference is not None and excludes_zero(*self.difference)


@dataclass(frozen=True)
class Table:
    """Cells by selector and measure, as of the last evaluated round, and notes."""

    round: int
    seeds: int
    baseline: str | None
    cells: dict[str, dict[str, Cell]]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In lines of plain text: mean and half-width of every selector and measure."""
        lines = [["", *(measure.title for measure in MEASURES)]]
        for name, cells in self.cells.items():
            found = [(measure, cells[measure.title]) for measure in MEASURES]
            lines.append([display_name(name), *(_plain_cell(measure, cell) for measure, cell in found)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([name.ljust(widths[0]), *(text.rjust(w) for text, w in zip(rest, widths[1:], strict=True))])
            for name, *rest in lines
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them: None in the place of nan."""
        return asdict(self, dict_factory=_plain)


def _plain_cell(measure: Measure, cell: Cell) -> str:
    if math.isnan(cell.mean):
        return "-"
    half = "" if math.isnan(cell.half_width) else f" ± {measure.shown(cell.half_width)}"
    return f"{measure.shown(cell.mean)}{half}"


def final_rows(rows: Iterable[Row]) -> dict[str, dict[int, Row]]:
    """The last evaluated record of each selector and seed."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if "accuracy" in row:
            found.setdefault(row["selector"], {})[row["seed"]] = row
    return found


def make_table(rows: Iterable[Row], baseline: str = "uniform") -> Table:
    """Mean and interval over seeds for every selector; differences are paired by seed."""
    rows = list(rows)
    finals = final_rows(rows)
    if not finals:
        raise ValueError("records: no evaluated round yet")
    seeds = sorted(next(iter(finals.values())))
    base = baseline if baseline in finals else None
    cells: dict[str, dict[str, Cell]] = {name: {} for name in finals}
    for m in MEASURES:
        values = {name: [_number(m.read(found[seed])) for seed in seeds] for name, found in finals.items()}
        means = {name: _where_known(interval, series) for name, series in values.items()}
        known = [mean for mean, _ in means.values() if not math.isnan(mean)]
        best = (max if m.more_is_better else min)(known, default=math.nan)
        for name, (mean, half_width) in means.items():
            against = None if base in (None, name) else _where_known(paired, values[name], values[str(base)])
            is_best = not math.isnan(mean) and m.shown(mean) == m.shown(best)
            cells[name][m.title] = Cell(mean, half_width, against, is_best)
    played = finals[next(iter(finals))][seeds[0]]["round"] + 1
    return Table(played, len(seeds), base, cells, (*_same_cohorts(rows), *_saturated(rows)))


def _same_cohorts(rows: Iterable[Row]) -> list[str]:
    """Which selectors chose the same clients in every round of every seed; nothing of records without cohorts."""
    chosen: dict[str, dict[tuple[int, int], frozenset[int]]] = {}
    for row in rows:
        if row.get("cohort"):
            chosen.setdefault(row["selector"], {})[row["seed"], row["round"]] = frozenset(row["cohort"])
    alike: list[list[str]] = []
    for name, cohorts in chosen.items():
        group = next((group for group in alike if chosen[group[0]] == cohorts), None)
        if group is None:
            alike.append([name])
        else:
            group.append(name)
    return [
        f"{listed([display_name(name) for name in group])} chose the same cohorts in {_extent(chosen[group[0]])}."
        for group in alike
        if len(group) > 1
    ]


def _extent(cohorts: Iterable[tuple[int, int]]) -> str:
    """All rounds, in words, from pairs of seed and round."""
    seeds, rounds = (len(set(part)) for part in zip(*cohorts, strict=True))
    return ("the only round" if rounds == 1 else f"all {rounds} rounds") + (f" of {seeds} seeds" if seeds > 1 else "")


def _saturated(rows: Iterable[Row]) -> list[str]:
    """Which selectors' loss term was full with the first client picked, in more than half of the rounds."""
    picks: dict[str, Counter[bool]] = {}
    for row in rows:
        if "saturated_at" in row:
            picks.setdefault(row["selector"], Counter())[row["saturated_at"] == 1] += 1
    shares = {name: found[True] / found.total() for name, found in picks.items()}
    full = [f"{display_name(name)} ({100 * share:.0f} %)" for name, share in shares.items() if share > 0.5]
    if not full:
        return []
    return [
        f"b was reached with the first pick in most rounds of {listed(full)}, so the loss term hardly chooses: "
        "try a larger b."
    ]


def _number(value: float | None) -> float:
    """The value, or nan for None: a cohort without replies has no local loss."""
    return math.nan if value is None else float(value)


def _where_known(estimate: Callable[..., tuple[float, float]], *series: list[float]) -> tuple[float, float]:
    """An estimate from the seeds of which every series knows its value; nan if there are none."""
    known = [values for values in zip(*series, strict=True) if not any(map(math.isnan, values))]
    return estimate(*zip(*known, strict=True)) if known else (math.nan, math.nan)


def _plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a dataclass as JSON holds them, which knows neither nan nor tuples."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(part) for part in value]
        return None if isinstance(value, float) and math.isnan(value) else value

    return {name: plain(value) for name, value in pairs}
