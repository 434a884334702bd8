"""The headline from the committed runs: one figure and one table, so that neither can drift from the numbers.

python -m tools.headline        # from the root of the repository: docs/figures/headline.svg, and the table
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from equifl.paper.tables import DATA
from equifl.statistics import interval
from tools.dot_plot import dot_plot
from tools.evidence import CLIENTS, FOLDER, PER_ROUND
from tools.evidence_tables import (
    ACCURACY,
    EVEN,
    LIMIT,
    NAMES,
    PASSES,
    RANDOM,
    ROTA,
    ROTA_AVERAGED,
    TURNS_AVERAGED,
    Row,
    Runs,
    table,
)

FIGURE = Path("docs/figures/headline.svg")
ROWS: Mapping[str, Row] = {
    "Random": RANDOM,
    "Power-of-Choice": Row("mean", "power_of_choice"),
    "DivFL": Row("mean", "divfl"),
    "SubTrunc": Row("mean", "subtrunc"),
    "UnionFL": Row("mean", "unionfl"),
    "Rota": ROTA,
    "Reshuffle, averaged": TURNS_AVERAGED,
    "Rota, averaged": ROTA_AVERAGED,
    "Rota + Memory": PASSES,
    "everybody": LIMIT,
}
OURS = ("Rota", "Rota, averaged", "Rota + Memory")


def seeds(folder: Path = FOLDER) -> dict[str, list[int]]:
    """By data set, those that all rows have."""
    return {data: Runs(data, folder).seeds(ROWS.values()) for data in DATA}


def figures(folder: Path = FOLDER) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Mean and half width of the 95 % interval by data set, row, and measure."""
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for data, common in seeds(folder).items():
        runs = Runs(data, folder)
        found[data] = {
            title: {m: interval(runs.values(row, m, common)) for m in (ACCURACY, EVEN, "worst10", "gini")}
            for title, row in ROWS.items()
        }
    return found


def markdown(folder: Path = FOLDER) -> str:
    """The table of the README."""
    numbers, lines = figures(folder), []
    for title in ROWS:
        cells = ["{:.1f} ± {:.1f}".format(*numbers[d][title][m]) for d in DATA for m in (ACCURACY, EVEN, "worst10")]
        up = CLIENTS if title == "everybody" else PER_ROUND
        lines.append([f"**{title}**" if title in OURS else title, *cells, str(up)])
    head = [f"{NAMES[d]} {word}" if i == 0 else word for d in DATA for i, word in enumerate(_WORDS)]
    return table(["", *head, "clients a round"], lines)


_WORDS = ("accuracy", "dissimilarity", "worst 10 %")


def svg(folder: Path = FOLDER) -> str:
    """Dissimilarity of every row, mean and interval."""
    numbers = figures(folder)
    panels = {NAMES[data]: {title: row[EVEN] for title, row in numbers[data].items()} for data in DATA}
    return dot_plot(panels, "client dissimilarity, points", marked=OURS)


if __name__ == "__main__":
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_text(svg())
    print(markdown())
