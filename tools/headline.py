"""The headline from the committed results: one figure and one table, so that neither can drift from the numbers.

python -m tools.headline        # from the root of the repository: docs/figures/headline.svg, and the table
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from equifl.paper.runs import PaperResults
from equifl.paper.tables import DATA, rows
from equifl.statistics import interval

RESULTS, FIGURE = Path("results/paper"), Path("docs/figures/headline.svg")
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
SEEDS = range(20)


def figures(folder: Path = RESULTS) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Mean and half width of the 95 % interval by data set, row of table I, and measure."""
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for data in DATA:
        finals = PaperResults.read(folder / f"{data}-paper.json").finals()
        found[data] = {
            row.title: {
                measure: interval([finals[row.selector][seed][measure] for seed in SEEDS])
                for measure in ("accuracy", "dissimilarity", "worst10", "gini")
            }
            for row in rows("table1", data)
        }
    return found


def markdown(folder: Path = RESULTS) -> str:
    """The table of the README."""
    numbers = figures(folder)
    header = "| | " + " | ".join(f"{NAMES[d]} accuracy | dissimilarity | worst 10 %" for d in DATA) + " | Gini |"
    lines = [header, "|---" * (2 + 3 * len(DATA)) + "|"]
    for title in numbers[DATA[0]]:
        cells = [_cell(*numbers[d][title][m]) for d in DATA for m in ("accuracy", "dissimilarity", "worst10")]
        ginis = [numbers[d][title]["gini"][0] for d in DATA]
        name = f"**{title}**" if title == "Rota" else title
        lines.append(f"| {name} | {' | '.join(cells)} | {min(ginis):.2f} to {max(ginis):.2f} |")
    return "\n".join(lines)


def _cell(mean: float, half_width: float) -> str:
    return f"{mean:.1f} ± {half_width:.1f}"


def svg(folder: Path = RESULTS) -> str:
    """Dissimilarity of every selector, mean and interval; readable on light and on dark."""
    numbers = figures(folder)
    panels = "".join(_panel(numbers[data], NAMES[data], 10 + 370 * i) for i, data in enumerate(DATA))
    style = "text{font:13px sans-serif;fill:#777}.a{stroke:#8884}"
    style += ".r{stroke:#d55e00;fill:#d55e00}.o{stroke:#0072b2;fill:#0072b2}"
    label = "Client dissimilarity by selector, mean and 95 % interval over 20 seeds"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 750 230" role="img" aria-label="{label}">'
    return f"{head}<style>{style}</style>{panels}</svg>\n"


def _panel(rows_: dict[str, dict[str, tuple[float, float]]], title: str, left: float) -> str:
    spans = [row["dissimilarity"] for row in rows_.values()]
    low, high = min(m - h for m, h in spans) - 0.3, max(m + h for m, h in spans) + 0.3
    parts = [f'<text x="{left + 115}" y="20">{title}: client dissimilarity, points</text>']
    for tick in _ticks(low, high):
        x = _x(tick, low, high, left)
        parts.append(
            f'<path class="a" d="M{x:.1f} 32V196"/><text x="{x:.1f}" y="214" text-anchor="middle">{tick}</text>'
        )
    for i, (name, row) in enumerate(rows_.items()):
        y = 46 + 28 * i
        mean, half = row["dissimilarity"]
        a, x, b = (_x(value, low, high, left) for value in (mean - half, mean, mean + half))
        kind = "r" if name == "Rota" else "o"
        parts.append(f'<text x="{left + 105}" y="{y + 4}" text-anchor="end">{name}</text>')
        line = f'<path d="M{a:.1f} {y}H{b:.1f}" stroke-width="2"/>'
        parts.append(f'<g class="{kind}">{line}<circle cx="{x:.1f}" cy="{y}" r="5"/></g>')
    return "".join(parts)


def _x(value: float, low: float, high: float, left: float) -> float:
    return left + 115 + 235 * (value - low) / (high - low)


def _ticks(low: float, high: float) -> Sequence[int]:
    return range(int(low) + 1, int(high) + 1)


if __name__ == "__main__":
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_text(svg())
    print(markdown())
