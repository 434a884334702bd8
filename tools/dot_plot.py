"""A drawing of means and intervals, a row each, panels side by side; readable on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

WIDTH, ROW, TOP = 180, 24, 44  # of a panel: the numbers, a row, and above the rows
LETTER = 7  # about the width of a letter


def dot_plot(
    panels: Mapping[str, Mapping[str, tuple[float, float]]], what: str, *, marked: Collection[str] = ()
) -> str:
    """An SVG: by panel and row a mean and the half width of its interval; rows in `marked` have the other colour."""
    drawn, tallest = [], max(len(rows) for rows in panels.values())
    label = 20 + LETTER * max(len(name) for rows in panels.values() for name in rows)
    for i, (title, rows) in enumerate(panels.items()):
        drawn.append(_panel(rows, f"{title}: {what}", i * (label + WIDTH + 20) + label, marked))
    wide, tall = len(panels) * (label + WIDTH + 20), TOP + ROW * tallest + 26
    told = f"{what}, mean and 95 % interval over seeds: {', '.join(panels)}"
    style = "text{font:13px sans-serif;fill:#777}.a{stroke:#8884}"
    style += ".r{stroke:#d55e00;fill:#d55e00}.o{stroke:#0072b2;fill:#0072b2}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" role="img" aria-label="{told}">'
    return f"{head}<style>{style}</style>{''.join(drawn)}</svg>\n"


def _panel(rows: Mapping[str, tuple[float, float]], title: str, start: float, marked: Collection[str]) -> str:
    low, high = min(m - h for m, h in rows.values()), max(m + h for m, h in rows.values())
    step = _step(high - low)
    low, high = step * math.floor(low / step), step * math.ceil(high / step)
    floor = TOP + ROW * len(rows)

    def x(value: float) -> float:
        return start + WIDTH * (value - low) / (high - low)

    parts = [f'<text x="{start + WIDTH / 2}" y="20" text-anchor="middle">{title}</text>']
    for tick in range(round((high - low) / step) + 1):
        value = low + tick * step
        parts.append(f'<path class="a" d="M{x(value):.1f} {TOP - 12}V{floor}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{floor + 18}" text-anchor="middle">{value:g}</text>')
    for i, (name, (mean, half)) in enumerate(rows.items()):
        y = TOP + ROW * i
        parts.append(f'<text x="{start - 12}" y="{y + 4}" text-anchor="end">{name}</text>')
        line = f'<path d="M{x(mean - half):.1f} {y}H{x(mean + half):.1f}" stroke-width="2"/>'
        parts.append(
            f'<g class="{"r" if name in marked else "o"}">{line}<circle cx="{x(mean):.1f}" cy="{y}" r="4"/></g>'
        )
    return "".join(parts)


def _step(span: float) -> float:
    """Between ticks: at most six of them.

    >>> [_step(span) for span in (0.9, 4.0, 9.5, 30.0)]
    [0.2, 1.0, 2.0, 5.0]
    """
    return next(step for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if span <= 6 * step)
