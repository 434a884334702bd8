"""Tables from results/evidence: blocks of docs/results.md (`python -m tools.results_page` writes them).

Figures are means over the last N / k rounds of a run, and ± is a 95 % interval over seeds. Dissimilarity is without
sampling noise: each client's mixture of classes, scored on the whole test set. A table takes the seeds that all its
runs have. Differences are paired by seed; a star says that p, corrected by Holm's method over the table, is below 5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from equifl.experiment.names import display_name
from equifl.paper.claims import MARGIN
from equifl.paper.tables import DATA
from equifl.signals import Floats
from equifl.statistics import holm, interval, p_value, paired
from tools.evidence import (
    EVERYBODY,
    FACTOR_LAMBDAS,
    FOLDER,
    MEASURES,
    OWN_WEIGHTS,
    RULES,
    SAME_WITH_EVERYBODY,
    WITH_RULES,
    Evidence,
    house,
)

PAGE = Path("docs/results.md")
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
ACCURACY, EVEN = "accuracy", "expected_dissimilarity"
ALL = f"{EVERYBODY}mean"


class Row(NamedTuple):
    """Where a figure comes from: a group, a selector in it, and which model is evaluated."""

    group: str
    selector: str
    model: str = "last"


RANDOM, ROTA, LIMIT = Row("mean", "uniform"), Row("mean", "rota"), Row(ALL, "uniform")
PASSES = Row("memory by loss", "rota", "averaged")
TURNS = Row("memory by loss", "reshuffle", "averaged")
TURNS_AVERAGED, ROTA_AVERAGED = Row("mean", "reshuffle", "averaged"), ROTA._replace(model="averaged")
HALVES: Mapping[str, Row] = {
    "Random": RANDOM,
    "turns alone: Reshuffle": Row("mean", "reshuffle"),
    "balance alone: Balanced": Row("mean", "balanced"),
    "balance alone, the group with the highest loss": Row("mean", "balanced_loss"),
    "both: Rota": ROTA,
    "Random, averaged": RANDOM._replace(model="averaged"),
    "Reshuffle, averaged": TURNS_AVERAGED,
    "Rota, averaged": ROTA_AVERAGED,
    "everybody in every round": LIMIT,
}
CLAIMS: Mapping[str, tuple[Row, Row]] = {
    "Rota less Random": (ROTA, RANDOM),
    "Rota less Balanced": (ROTA, Row("mean", "balanced")),
    "Random with memory less Rota": (Row("memory", "uniform"), ROTA),
    "Reshuffle with memory less Rota with memory": (Row("memory", "reshuffle"), Row("memory", "rota")),
    "Rota with memory and averaging less everybody": (Row("memory", "rota", "averaged"), LIMIT),
    "Rota with memory by loss and averaging less everybody": (PASSES, LIMIT),
    "the same, everybody averaged, too": (PASSES, Row(ALL, "uniform", "averaged")),
    "the same, everybody weighted by loss, too": (PASSES, Row(f"{EVERYBODY}by loss", "uniform")),
    "Reshuffle with memory by loss and averaging less everybody": (TURNS, LIMIT),
    "Reshuffle less Rota, both with memory by loss and averaging": (TURNS, PASSES),
    "Reshuffle with averaging less Rota without": (TURNS_AVERAGED, ROTA),
    "Rota with averaging less everybody": (ROTA_AVERAGED, LIMIT),
}
AS_PUBLISHED: Mapping[str, tuple[Row, Row]] = {  # beside the same selector by its defaults
    "DivFL, weighted by how many each represents": (Row(OWN_WEIGHTS, "divfl"), Row("mean", "divfl")),
    "ClusteredSampling, with its weights": (Row(OWN_WEIGHTS, "clustered_sampling"), Row("mean", "clustered_sampling")),
    "OptimalSampling, weighted by 1/p": (Row(OWN_WEIGHTS, "optimal_sampling"), Row("mean", "optimal_sampling")),
    "OptimalSampling, weighted by 1/p, fresh lengths": (
        Row(f"fresh: {OWN_WEIGHTS}", "optimal_sampling"),
        Row("mean", "optimal_sampling"),
    ),
    "Power-of-Choice, fresh losses (pow-d)": (Row("fresh: mean", "power_of_choice"), Row("mean", "power_of_choice")),
    "HiCSFL, gamma falls to 0": (Row("falling: mean", "hicsfl"), Row("mean", "hicsfl")),
}


@dataclass(frozen=True)
class Runs:
    """One data set's runs, and how to read them.

    >>> Runs("mnist", Path("an empty folder")).seeds([RANDOM])
    []
    """

    data: str
    folder: Path = FOLDER

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence.read(self.data, self.folder)

    def seeds(self, rows: Iterable[Row]) -> list[int]:
        """Those that all of these runs have."""
        found = [set(self.evidence.runs.get(row.group, {}).get(row.selector, {})) for row in rows]
        return sorted(set.intersection(*found))

    def values(self, row: Row, measure: str, seeds: Sequence[int]) -> Floats:
        """One a seed: the mean over the last rounds."""
        runs = self.evidence.runs[row.group][row.selector]
        if measure in MEASURES:
            return np.array([runs[seed][row.model][measure][1] for seed in seeds])
        return np.array([runs[seed][measure] for seed in seeds])

    def complete(self, rows: Iterable[Row]) -> bool:
        """Whether there are two seeds or more of all of these runs."""
        return len(self.seeds(rows)) > 1


def halves(folder: Path = FOLDER) -> str:
    """What each half of Rota contributes, and what share of the way from Random to everybody each goes."""
    made = []
    for data in DATA:
        runs, lines = Runs(data, folder), []
        seeds = runs.seeds(HALVES.values())
        start, end = (runs.values(row, EVEN, seeds).mean() for row in (RANDOM, LIMIT))
        for title, row in HALVES.items():
            way = (start - runs.values(row, EVEN, seeds).mean()) / (start - end)
            gini = runs.values(row, "gini", seeds).mean()
            figures = [_cell(runs.values(row, name, seeds)) for name in (ACCURACY, EVEN, "dissimilarity", "worst10")]
            lines.append([title, *figures, f"{gini:.2f}", f"{100 * way:.0f} %"])
        head = [f"{NAMES[data]}, {len(seeds)} seeds", "accuracy", "dissimilarity without noise", "as observed"]
        made.append(table([*head, "worst 10 %", "Gini", "of the way"], lines))
    return "\n\n".join(made)


def every_selector(folder: Path = FOLDER) -> str:
    """Every selector without parameters of its own, best first; stars against Random."""
    made = []
    for data in DATA:
        runs = Runs(data, folder)
        rows = {name: Row("mean", name) for name in house() if runs.complete([Row("mean", name)])}
        seeds = runs.seeds(rows.values())
        others = [name for name in rows if name != "uniform"]
        stars = iter(_stars([(runs, rows[name], RANDOM, m) for name in others for m in (ACCURACY, EVEN)]))
        marked = {(name, m): next(stars) for name in others for m in (ACCURACY, EVEN)}
        lines = []
        for name in sorted(rows, key=lambda name: float(runs.values(rows[name], EVEN, seeds).mean())):
            cells = [_cell(runs.values(rows[name], m, seeds)) + marked.get((name, m), "") for m in (ACCURACY, EVEN)]
            rest = [
                f"{runs.values(rows[name], m, seeds).mean():.{digits}f}" for m, digits in (("worst10", 1), ("gini", 2))
            ]
            lines.append([title_of(name), *cells, *rest])
        head = [f"{NAMES[data]}, {len(seeds)} seeds", "accuracy", "dissimilarity without noise", "worst 10 %", "Gini"]
        made.append(table(head, lines))
    return "\n\n".join(made)


def title_of(name: str) -> str:
    """As tables call a selector."""
    return "Balanced, highest loss" if name == "balanced_loss" else display_name(name)


def server_rules(folder: Path = FOLDER) -> str:
    """Accuracy / dissimilarity of every rule with some selectors, of the last model and of the mean of the last.

    Where everybody trains, memory is the mean, and shows its runs.
    """
    made = []
    for data in DATA:
        runs = Runs(data, folder)
        rows = {
            (rule, model, name): Row(everybodys(rule) if name == "everybody" else rule, selector, model)
            for rule in RULES
            for model in ("last", "averaged")
            for name, selector in {**{name: name for name in WITH_RULES}, "everybody": "uniform"}.items()
        }
        there = {key: row for key, row in rows.items() if runs.complete([row])}
        seeds = runs.seeds(there.values())
        columns = [name for name in (*WITH_RULES, "everybody") if any(key[2] == name for key in there)]
        lines = []
        for rule, model in dict.fromkeys(key[:2] for key in there):
            cells = [
                " / ".join(_cell(runs.values(there[rule, model, name], m, seeds)) for m in (ACCURACY, EVEN))
                if (rule, model, name) in there
                else ""
                for name in columns
            ]
            lines.append([rule, "last" if model == "last" else "averaged", *cells])
        head = [f"{NAMES[data]}, {len(seeds)} seeds", "model"]
        made.append(
            table([*head, *("everybody" if name == "everybody" else title_of(name) for name in columns)], lines)
        )
    return "\n\n".join(made)


def everybodys(rule: str) -> str:
    """The group in which everybody trains, with this rule.

    >>> everybodys("memory"), everybodys("momentum")
    ('everybody: mean', 'everybody: momentum')
    """
    return f"{EVERYBODY}{SAME_WITH_EVERYBODY.get(rule, rule)}"


def differences(folder: Path = FOLDER) -> str:
    """Paired differences, with stars by Holm over the whole table, and what is smaller than half a point."""
    all_runs = {data: Runs(data, folder) for data in DATA}
    compared = [(all_runs[data], *pair, m) for data in DATA for pair in CLAIMS.values() for m in (ACCURACY, EVEN)]
    cells = {}
    for (runs, one, other, m), star in zip(compared, _stars(compared), strict=True):
        mean, half = _difference(runs, one, other, m)
        same = ", equivalent" if abs(mean) + half < MARGIN else ""
        cells[runs.data, one, other, m] = f"{mean:+.2f} ± {half:.2f}{star}{same}"
    head = ["difference, in pairs"]
    for data, runs in all_runs.items():
        seeds = runs.seeds({row for pair in CLAIMS.values() for row in pair})
        head += [f"{NAMES[data]} ({len(seeds)} seeds) {word}" for word in ("acc.", "dissim.")]
    lines = [
        [text, *(cells[data, *pair, m] for data in DATA for m in (ACCURACY, EVEN))] for text, pair in CLAIMS.items()
    ]
    return table(head, lines)


def as_published(folder: Path = FOLDER) -> str:
    """Selectors as their authors have them: figures, and in brackets the difference to the defaults, with stars."""
    all_runs = {data: Runs(data, folder) for data in DATA}
    compared = [
        (all_runs[data], *pair, m) for data in DATA for pair in AS_PUBLISHED.values() for m in (ACCURACY, EVEN)
    ]
    cells = {}
    for (runs, one, other, m), star in zip(compared, _stars(compared), strict=True):
        mean, half = _difference(runs, one, other, m)
        cells[runs.data, one, m] = f"{_cell(runs.values(one, m, runs.seeds([one])))} ({mean:+.1f} ± {half:.1f}{star})"
    head = ["", *(f"{NAMES[data]} {word}" for data in DATA for word in ("acc.", "dissim."))]
    lines = [
        [text, *(cells[data, one, m] for data in DATA for m in (ACCURACY, EVEN))]
        for text, (one, _) in AS_PUBLISHED.items()
    ]
    return table(head, lines)


def truncation_factor(folder: Path = FOLDER) -> str:
    """SubTrunc with its truncation as a factor, by lambda, beside DivFL; r = 10 candidates a step, as in the paper."""
    rows = {"DivFL": Row("paper", "divfl_r10")}
    rows |= {f"lambda {value:g}": Row("paper", f"subtrunc_factor_{value}") for value in FACTOR_LAMBDAS}
    lines = []
    for data in DATA:
        runs = Runs(data, folder)
        seeds = runs.seeds(rows.values())
        if len(seeds) < 2:
            continue
        for measure, word in ((ACCURACY, "accuracy"), (EVEN, "dissimilarity without noise")):
            cells = [_cell(runs.values(row, measure, seeds)) for row in rows.values()]
            lines.append([f"{NAMES[data]}, {len(seeds)} seeds: {word}", *cells])
    return table(["", *rows], lines)


SETTINGS = {
    "paper": "3 classes a client (above)",
    "dirichlet_0.1": "Dirichlet 0.1",
    "dirichlet_0.5": "Dirichlet 0.5",
    "unequal": "unequal sizes",
    "online_0.3": "30 % online",
    "long": "five times the rounds",
}
BEYOND_ROWS: Mapping[str, Row] = {
    "Random": RANDOM,
    "Reshuffle": Row("mean", "reshuffle"),
    "Power-of-Choice": Row("mean", "power_of_choice"),
    "DivFL": Row("mean", "divfl"),
    "SubTrunc": Row("mean", "subtrunc"),
    "UnionFL": Row("mean", "unionfl"),
    "Balanced, highest loss": Row("mean", "balanced_loss"),
    "Rota": ROTA,
    "Reshuffle, averaged": TURNS_AVERAGED,
    "Rota, averaged": ROTA_AVERAGED,
    "Reshuffle + Memory": TURNS,
    "Rota + Memory": PASSES,
    "everybody": LIMIT,
}


def in_setting(variant: str, row: Row) -> Row:
    """The same row in a variant of the paper's setting."""
    return row if variant == "paper" else row._replace(group=f"{variant}: {row.group}")


def beyond(folder: Path = FOLDER) -> str:
    """Dissimilarity (accuracy) in every setting; bold where, by Holm over the table, it is not Random's."""
    made = []
    for data in DATA:
        runs, lines = Runs(data, folder), []
        there = [
            (variant, title, in_setting(variant, row))
            for variant in SETTINGS
            for title, row in BEYOND_ROWS.items()
            if runs.complete([in_setting(variant, row)])
        ]
        compared = [
            (runs, row, in_setting(variant, RANDOM), m)
            for variant, title, row in there
            for m in (EVEN, ACCURACY)
            if title != "Random"
        ]
        starred = dict(zip([(row, m) for _, row, _, m in compared], _stars(compared), strict=True))
        for variant, words in SETTINGS.items():
            own = {title: row for v, title, row in there if v == variant}
            if not own:
                continue
            seeds, cells = runs.seeds(own.values()), []
            for title in BEYOND_ROWS:
                row = own.get(title)
                shown = [f"{runs.values(row, m, seeds).mean():.1f}" for m in (EVEN, ACCURACY)] if row else []
                marks = ["**" if row and starred.get((row, m)) else "" for m in (EVEN, ACCURACY)]
                cells.append("{0}{2}{0} ({1}{3}{1})".format(*marks, *shown) if row else "")
            lines.append([words, str(len(seeds)), *cells])
        made.append(table([NAMES[data], "seeds", *BEYOND_ROWS], lines))
    return "\n\n".join(made)


def blocks(folder: Path = FOLDER) -> dict[str, str]:
    """Every table, by the name of its block."""
    return {
        "halves of Rota": halves(folder),
        "every selector": every_selector(folder),
        "server rules": server_rules(folder),
        "differences": differences(folder),
        "as published": as_published(folder),
        "beyond": beyond(folder),
        "truncation as a factor": truncation_factor(folder),
    }


def _stars(compared: Sequence[tuple[Runs, Row, Row, str]]) -> list[str]:
    """A star where p, corrected over all that is compared, is below 5 %."""
    p = []
    for runs, one, other, m in compared:
        seeds = runs.seeds([one, other])
        p.append(p_value(runs.values(one, m, seeds), runs.values(other, m, seeds)))
    return [" *" if value < 0.05 else "" for value in holm(p)]


def _difference(runs: Runs, one: Row, other: Row, measure: str) -> tuple[float, float]:
    seeds = runs.seeds([one, other])
    return paired(runs.values(one, measure, seeds), runs.values(other, measure, seeds))


def _cell(values: Floats) -> str:
    return "{:.1f} ± {:.1f}".format(*interval(values))


def table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    cells = list(header)
    drawn = ["| " + " | ".join(line) + " |" for line in (cells, *lines)]
    return "\n".join([drawn[0], "|---" * len(cells) + "|", *drawn[1:]])
