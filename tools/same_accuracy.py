"""How even models of the same accuracy are, and when a run gets there: a block of docs/results.md.

A more accurate model is more even, so this tells the two apart. Every run is taken where it first has the highest
accuracy that all runs of the table have had, between two of its evaluations in proportion. It is evaluated every ten
rounds, the last model, as observed: dissimilarity without sampling noise is kept of the last rounds alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from equifl.experiment.endpoint import common_score, matched_evaluations
from equifl.paper.tables import DATA
from equifl.signals import Floats
from equifl.statistics import holm, p_value, paired
from tools.evidence import FOLDER
from tools.evidence_tables import LIMIT, NAMES, PASSES, RANDOM, ROTA, Row, Runs, table

ROWS: Mapping[str, Row] = {
    "Random": RANDOM,
    "Reshuffle": Row("mean", "reshuffle"),
    "Power-of-Choice": Row("mean", "power_of_choice"),
    "DivFL": Row("mean", "divfl"),
    "SubTrunc": Row("mean", "subtrunc"),
    "UnionFL": Row("mean", "unionfl"),
    "Balanced": Row("mean", "balanced"),
    "Rota": ROTA,
    "Rota, memory by loss": PASSES._replace(model="last"),
    "everybody": LIMIT,
}


class Matched(NamedTuple):
    """One data set's runs where they first have this accuracy: rounds and dissimilarities by row, a value a seed."""

    accuracy: float
    rounds: Mapping[str, Floats]
    dissimilarity: Mapping[str, Floats]


@cache
def matched(data: str, folder: Path = FOLDER) -> Matched:
    """Of the seeds that all rows have."""
    runs = Runs(data, folder)
    seeds = runs.seeds(ROWS.values())
    courses = {
        title: {
            seed: [
                {"round": int(round), "accuracy": accuracy, "dissimilarity": dissimilarity}
                for round, (accuracy, dissimilarity) in runs.evidence.runs[row.group][row.selector][seed][
                    "rounds"
                ].items()
            ]
            for seed in seeds
        }
        for title, row in ROWS.items()
    }
    score = common_score(courses, "accuracy")
    found = matched_evaluations(courses, "accuracy", score)

    def values(key: str) -> dict[str, Floats]:
        return {
            title: np.array([sum(share * row[key] for row, share in by_seed[seed]) for seed in seeds])
            for title, by_seed in found.items()
        }

    return Matched(score, values("round"), values("dissimilarity"))


def decided(folder: Path = FOLDER) -> set[tuple[str, str, str]]:
    """Data set, row and measure of each difference to Random that is not 0, by Holm over the whole table."""
    places, p = [], []
    for data in DATA:
        at = matched(data, folder)
        for measure in ("rounds", "dissimilarity"):
            values: Mapping[str, Floats] = getattr(at, measure)
            for title in ROWS:
                if title != "Random":
                    places.append((data, title, measure))
                    p.append(p_value(values[title], values["Random"]))
    return {place for place, value in zip(places, holm(p), strict=True) if value < 0.05}


def blocks(folder: Path = FOLDER) -> dict[str, str]:
    """The table, by the name of its block."""
    found = {data: matched(data, folder) for data in DATA}
    stars = dict.fromkeys(decided(folder), " *")
    head, lines = [""], []
    for data, at in found.items():
        head += [f"{NAMES[data]}: rounds to {at.accuracy:.1f} %", "dissimilarity there (less Random's)"]
    for title in ROWS:
        cells = [title]
        for data, at in found.items():
            cells.append(f"{at.rounds[title].mean():.0f}{stars.get((data, title, 'rounds'), '')}")
            mean, half = paired(at.dissimilarity[title], at.dissimilarity["Random"])
            less = f" ({mean:+.2f} ± {half:.2f}{stars.get((data, title, 'dissimilarity'), '')})"
            cells.append(f"{at.dissimilarity[title].mean():.1f}" + ("" if title == "Random" else less))
        lines.append(cells)
    return {"at the same accuracy": table(head, lines)}
