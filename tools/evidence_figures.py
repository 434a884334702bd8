"""Figures of docs/results.md from results/evidence: a panel a data set, mean and 95 % interval over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from equifl.paper.tables import DATA, LAMBDAS
from equifl.statistics import interval, paired
from tools.dot_plot import dot_plot
from tools.evidence import FACTOR_LAMBDAS, FOLDER, WITH_RULES, house
from tools.evidence_tables import (
    BEYOND_ROWS,
    EVEN,
    LIMIT,
    NAMES,
    RANDOM,
    ROTA,
    SETTINGS,
    Row,
    Runs,
    in_setting,
    title_of,
)

FIGURES = Path("docs/figures")
POINTS = "dissimilarity, points"
Panel = Mapping[str, tuple[float, float]]


def panel(runs: Runs, rows: Mapping[str, Row]) -> Panel:
    """Dissimilarity without noise of some rows, best first, by the seeds that all have."""
    seeds = runs.seeds(rows.values())
    found = {title: interval(runs.values(row, EVEN, seeds)) for title, row in rows.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def selectors(folder: Path) -> str:
    """Every selector of the house, and everybody."""
    rows = {title_of(name): Row("mean", name) for name in house()} | {"everybody": LIMIT}
    return dot_plot(_panels(rows, folder), POINTS, marked=["Rota", "Balanced", "Balanced, highest loss"])


def server(folder: Path) -> str:
    """The mean, and memory by loss with averaging, with some selectors."""
    rows = {title_of(name): Row("mean", name) for name in WITH_RULES}
    rules = {f"{title_of(name)} + Memory": Row("memory by loss", name, "averaged") for name in WITH_RULES}
    return dot_plot(_panels({**rows, **rules, "everybody": LIMIT}, folder), POINTS, marked=list(rules))


def settings(folder: Path) -> str:
    """What Rota, and Rota with memory, take off Random's dissimilarity in every setting."""
    panels = {}
    for data in DATA:
        runs = Runs(data, folder)
        rows: dict[str, tuple[float, float]] = {}
        for variant, words in SETTINGS.items():
            for title, row in (("Rota", ROTA), ("Rota + Memory", BEYOND_ROWS["Rota + Memory"])):
                pair = in_setting(variant, row), in_setting(variant, RANDOM)
                seeds = runs.seeds(pair)
                one, other = (runs.values(each, EVEN, seeds) for each in pair)
                rows[f"{words.removesuffix(' (above)')}: {title}"] = paired(one, other)
        panels[NAMES[data]] = rows
    return dot_plot(panels, "less Random, points", marked=[row for row in rows if row.endswith("Memory")])


def truncation(folder: Path) -> str:
    """SubTrunc by lambda: b as the number it is, and as a factor."""
    literal = {f"b = 1.1, lambda {lam:g}": Row("paper", f"subtrunc_{lam}") for lam in LAMBDAS}
    factor = {f"factor 1.1, lambda {lam:g}": Row("paper", f"subtrunc_factor_{lam}") for lam in FACTOR_LAMBDAS}
    rows = {"DivFL": Row("paper", "divfl_r10"), **literal, **factor}
    panels = {}
    for data in DATA:
        runs = Runs(data, folder)
        seeds = runs.seeds(rows.values())
        panels[NAMES[data]] = {title: interval(runs.values(row, EVEN, seeds)) for title, row in rows.items()}
    return dot_plot(panels, POINTS, marked=list(factor))


def drawings(folder: Path = FOLDER) -> dict[str, str]:
    """Every figure, by its file."""
    made = {"selectors": selectors, "server": server, "settings": settings, "truncation": truncation}
    return {f"results-{name}.svg": draw(folder) for name, draw in made.items()}


def write(folder: Path = FOLDER) -> None:
    """All figures, where the page expects them."""
    for name, svg in drawings(folder).items():
        (FIGURES / name).write_text(svg)


def _panels(rows: Mapping[str, Row], folder: Path, data: Iterable[str] = DATA) -> dict[str, Panel]:
    return {NAMES[name]: panel(Runs(name, folder), rows) for name in data}
