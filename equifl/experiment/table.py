"""The table of an experiment: every selector, mean and 95 % interval over seeds, and its difference to a baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from equifl._numerics.checks import require
from equifl.experiment import table_formats
from equifl.experiment.endpoint import Weighted, as_far, common_score, last_evaluations, matched_evaluations
from equifl.experiment.measures import MEASURES, Measure, Row, chosen_measures, with_test_classes
from equifl.experiment.names import display_name, listed
from equifl.experiment.sweep import baseline_of, parameters_of
from equifl.experiment.task_table import ACCURACY, NOT_EVALUATED, Score, is_evaluated
from equifl.statistics import holm, interval, p_value, paired


@dataclass(frozen=True)
class Cell:
    """A selector's result in one measure; nan where there are too few seeds or replies.

    `difference` is to the baseline, seed by seed, with its own interval; None for the baseline itself. `p` is that of
    the paired t test of it, corrected for the number of comparisons if the table is. `best` are all whose mean is the
    best with the digits that are shown.
    """

    mean: float
    half_width: float
    difference: tuple[float, float] | None
    best: bool
    p: float = math.nan

    @property
    def differs(self) -> bool:
        """Whether the selector differs from the baseline, at the level of 5 %."""
        return self.p < 0.05


@dataclass(frozen=True)
class Table:
    """Cells by selector and measure, as of the last evaluated round, and notes.

    It shows itself in a terminal and in a notebook. `parameters` are the values of a sweep, by selector.
    """

    round: int
    seeds: int
    baseline: str | None
    cells: dict[str, dict[str, Cell]]
    notes: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = MEASURES
    correction: str | None = None
    averaged: int = 1  # evaluated rounds that each figure is a mean of
    matched: float | None = None  # the score, such as the accuracy, at which every run is taken
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fewest_seeds: int | None = None  # of a selector, where not all have as many; None = all have `seeds`

    def __str__(self) -> str:
        """In lines of plain text: mean and half-width of every selector and measure."""
        return table_formats.plain_text(self)

    def _repr_html_(self) -> str:
        return table_formats.html_table(self)

    def to_markdown(self) -> str:
        """A table in Markdown: best in bold, a star where a selector differs from the baseline."""
        return table_formats.markdown(self)

    def to_latex(self, *, caption: str | None = None, label: str = "tab:equifl") -> str:
        """A table in LaTeX (needs the package booktabs): best in bold, a star where a selector differs.

        Args:
            caption: plain text, or LaTeX if it has a backslash or a dollar sign; None = a sentence that says what the
                figures are.
            label: the name that the text refers to it by.
        """
        return table_formats.latex(self, caption, label)

    def to_csv(self) -> str:
        """A row a selector: of every measure the mean, the half-width, the difference, its half-width and p."""
        return table_formats.comma_separated(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them: None in the place of nan."""
        found = asdict(replace(self, measures=()), dict_factory=_plain)
        return found | {"measures": [measure.name for measure in self.measures]}

    @property
    def parameter_names(self) -> list[str]:
        """The parameters of a sweep, each a column."""
        return list(dict.fromkeys(name for given in self.parameters.values() for name in given))

    @property
    def compares(self) -> bool:
        """Whether there are differences to a baseline."""
        return self.baseline is not None and len(self.cells) > 1

    @property
    def about(self) -> list[str]:
        """What the figures are, in parts of a sentence."""
        rounds = "1 round" if self.round == 1 else f"{self.round} rounds"
        when = f"after {rounds}" if self.averaged == 1 else f"over the last {self.averaged} evaluations of {rounds}"
        if self.matched is not None:
            when = f"where each run first has a score of {self.matched:.4g}, the highest that all reach"
        one = self.seeds == 1
        seeds = f"{'' if self.fewest_seeds is None else f'{self.fewest_seeds} to '}{self.seeds} seeds"
        parts = [f"one seed {when}: no interval" if one else f"mean ± 95 % interval over {seeds} {when}"]
        return [*parts, "bold = best"]

    @property
    def star(self) -> str:
        """What a star says; empty where there can be none."""
        if not self.compares or self.seeds == 1:
            return ""
        corrected = ", Holm's correction for all comparisons in the table" if self.correction == "holm" else ""
        return f"significant at the 5 % level (paired t test{corrected})"


def final_rows(rows: Iterable[Row]) -> dict[str, dict[int, Row]]:
    """The last evaluated record of each selector and seed."""
    return {name: {seed: of[-1] for seed, of in found.items()} for name, found in _evaluated(rows).items()}


def _evaluated(rows: Iterable[Row]) -> dict[str, dict[int, list[Row]]]:
    """The evaluated records of each selector and seed, in their order."""
    found: dict[str, dict[int, list[Row]]] = {}
    for row in with_test_classes(rows):
        if is_evaluated(row):
            found.setdefault(row["selector"], {}).setdefault(row["seed"], []).append(row)
    return found


def make_table(
    rows: Iterable[Row],
    *,
    baseline: str | None = "uniform",
    measures: Iterable[str] | None = None,
    correction: Literal["holm"] | None = "holm",
    last: int = 1,
    matched: bool = False,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    score: Score = ACCURACY,
) -> Table:
    """Mean and interval over seeds for every selector; differences are paired by seed.

    Args:
        rows: records.
        baseline: the selector that others are compared with; nobody is if it has no records.
        measures: names of the columns (`usual_measures`, `more_measures`); None = the usual five.
        correction: "holm" corrects the p of all comparisons in the table for their number; None does not.
        last: every figure is the mean of so many last evaluations of a run, of the second half of them at most.
        matched: every figure is that of where a run first has the highest score that all of them reach.
        parameters: of a sweep, by selector.
        score: what the records' scores are.
    """
    rows = list(rows)
    evaluated = _evaluated(rows)
    if not evaluated:
        raise ValueError(NOT_EVALUATED)
    evaluated, behind = as_far(evaluated)
    shared = common_score(evaluated, score.key) if matched else None
    found = last_evaluations(evaluated, last)
    if shared is not None:
        found = matched_evaluations(evaluated, score.key, shared)
    require("correction", correction, correction in ("holm", None), '"holm" or None')
    columns = chosen_measures(measures, score)
    bases = {name: None if baseline is None else baseline_of(name, baseline, found) for name in found}
    base = baseline if any(bases.values()) else None
    cells: dict[str, dict[str, Cell]] = {name: {} for name in found}
    for m in columns:
        values = {name: {s: _mean(m, of) for s, of in runs.items()} for name, runs in found.items()}
        means = {name: _where_known(interval, list(series.values())) for name, series in values.items()}
        known = [mean for mean, _ in means.values() if not math.isnan(mean)]
        best = (max if m.more_is_better else min)(known, default=math.nan)
        for name, (mean, half_width) in means.items():
            is_best = not math.isnan(mean) and m.shown(mean) == m.shown(best)
            cell = Cell(mean, half_width, None, is_best)
            if (other := bases[name]) not in (None, name):
                there = values[str(other)]
                common = sorted(values[name].keys() & there.keys())
                pairs = [values[name][s] for s in common], [there[s] for s in common]
                p, _ = _where_known(lambda *pair: (p_value(*pair), 0.0), *pairs)
                cell = replace(cell, difference=_where_known(paired, *pairs), p=p)
            cells[name][m.title] = cell
    if correction == "holm":
        _correct(cells)
    runs = [run for by_seed in found.values() for run in by_seed.values()]
    numbers = {len(by_seed) for by_seed in found.values()}
    return Table(
        round=max(run[-1][0]["round"] for run in runs) + 1,
        seeds=max(numbers),
        baseline=base,
        cells=cells,
        notes=(*behind, *_same_cohorts(rows), *_saturated(rows)),
        measures=columns,
        correction=correction,
        averaged=1 if matched else max(map(len, runs)),
        matched=shared,
        parameters=parameters or {},
        fewest_seeds=min(numbers) if len(numbers) > 1 else None,
    )


def _correct(cells: dict[str, dict[str, Cell]]) -> None:
    """Replace every p of a table by Holm's, in place."""
    family = [(name, title) for name, found in cells.items() for title in found if not math.isnan(found[title].p)]
    for (name, title), p in zip(family, holm([cells[name][title].p for name, title in family]), strict=True):
        cells[name][title] = replace(cells[name][title], p=p)


def _mean(measure: Measure, rows: Weighted) -> float:
    """The mean of a measure over records that know it; nan if none does: a cohort without replies has no loss."""
    known = [(float(value), weight) for row, weight in rows if (value := measure.read(row)) is not None]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total else math.nan


def _same_cohorts(rows: Iterable[Row]) -> list[str]:
    """Which selectors chose the same clients in every round of every seed; nothing of records without cohorts."""
    chosen: dict[str, dict[tuple[int, int], frozenset[int]]] = {}
    for row in rows:
        if row.get("cohort"):
            chosen.setdefault(row["selector"], {})[row["seed"], row["round"]] = frozenset(row["cohort"])
    alike: list[list[str]] = []
    for name, cohorts in chosen.items():
        group = next((g for g in alike if chosen[g[0]] == cohorts and _experiment(g[0]) == _experiment(name)), None)
        if group is None:
            alike.append([name])
        else:
            group.append(name)
    return [
        f"{listed([display_name(name) for name in group])} chose the same cohorts in {_extent(chosen[group[0]])}."
        for group in alike
        if len(group) > 1
    ]


def _experiment(name: str) -> dict[str, Any]:
    """What a selector's experiment was swept by: its parameters that have dots."""
    return {key: value for key, value in parameters_of(name).items() if "." in key}


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
