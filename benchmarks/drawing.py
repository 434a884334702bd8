"""What benchmarks put into the docs: figures as SVG, readable on light and on dark, and tables between marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Okabe and Ito's, distinct for the colour-blind.
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#999999", "#cc79a7")
WIDTH, TOP, BOTTOM = 300, 40, 260  # of a panel


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with a label at each tick."""

    low: float
    high: float
    ticks: Mapping[float, str]
    logarithmic: bool = False

    @classmethod
    def powers(cls, low: int, high: int, label: str = "") -> Axis:
        """Logarithmic, from 10^low to 10^high; a label such as "10^{}", or the numbers themselves."""
        ticks = {10.0**p: label.format(p) if label else f"{10.0**p:g}" for p in range(low, high + 1)}
        return cls(10.0**low, 10.0**high, ticks, True)

    @classmethod
    def steps(cls, high: float, step: float) -> Axis:
        """Linear, from 0 to `high`."""
        return cls(0.0, high, {step * i: f"{step * i:g}" for i in range(round(high / step) + 1)})

    def share(self, value: float) -> float:
        """How much of the way from `low` to `high` a value lies."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass
class Panel:
    """One pair of axes, and what is drawn between them."""

    left: float
    title: str
    across: Axis
    up: Axis
    top: float = 0.0
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts.append(f'<text x="{self.left}" y="{self.top + 24:g}">{self.title}</text>')
        for value, label in self.up.ticks.items():
            self.parts.append(f'<path class="a" d="M{self.left} {self.y(value):.1f}h{WIDTH}"/>')
            self.parts.append(text(self.left - 6, self.y(value) + 4, label, "end"))
        for value, label in self.across.ticks.items():
            self.parts.append(f'<path class="a" d="M{self.x(value):.1f} {self.top + TOP:g}V{self.top + BOTTOM:g}"/>')
            self.parts.append(text(self.x(value), self.top + BOTTOM + 20, label, "middle"))

    def x(self, value: float) -> float:
        return self.left + WIDTH * self.across.share(value)

    def y(self, value: float) -> float:
        return self.top + BOTTOM - (BOTTOM - TOP) * self.up.share(value)

    def line(self, points: Mapping[float, float], colour: str, *, dashed: bool = False) -> None:
        """Through the points, from left to right."""
        places = [(self.x(x), self.y(y)) for x, y in sorted(points.items())]
        path, dash = "L".join(f"{x:.1f} {y:.1f}" for x, y in places), ' stroke-dasharray="5 4"' if dashed else ""
        if path:
            self.parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2"{dash}/>')
        self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = "") -> str:
    style = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{content}</text>'


def picture(panels: Sequence[Panel], legend: Iterable[tuple[str, str]], about: str) -> str:
    """The panels where they say, and (name, colour) under them, three in a row; `about` is read to the blind."""
    style = "text{font:13px sans-serif;fill:#777}path{fill:none}.a{stroke:#8884}"
    bottom = 300 + max(panel.top for panel in panels)
    names = [
        text(60 + 240 * (at % 3), bottom + 8 + 20 * (at // 3), name, colour=colour)
        for at, (name, colour) in enumerate(legend)
    ]
    width, height = max(panel.left for panel in panels) + WIDTH + 20, bottom + 20 * -(-len(names) // 3)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{about}">'
    )
    parts = [head, f"<style>{style}</style>", *(part for panel in panels for part in panel.parts), *names]
    return "".join(parts) + "</svg>\n"


def fill_in(page: Path, tables: Mapping[str, str]) -> None:
    """Put each table between its two marks."""
    content = page.read_text()
    for name, table in tables.items():
        mark = f"<!-- {name} -->"
        before, _, after = content.split(mark)
        content = f"{before}{mark}\n{table}\n{mark}{after}"
    page.write_text(content)
