"""Lines on logarithmic axes, as an SVG that needs no library and suits light pages and dark ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#999999", "#cc79a7")
STYLE = "text{font:13px sans-serif;fill:#777}path{fill:none}.a{stroke:#8884}"


@dataclass(frozen=True)
class Panel:
    """One pair of axes, each from one power of ten to another, and what goes there: a y for some x of each line."""

    title: str
    x: tuple[int, int]
    y: tuple[int, int]
    lines: Mapping[str, Mapping[float, float]]

    def draw(self, left: float, top: float, colours: Mapping[str, str]) -> list[str]:
        (x_low, x_high), (y_low, y_high) = self.x, self.y

        def x(value: float) -> float:
            return left + 300 * (math.log10(value) - x_low) / (x_high - x_low)

        def y(value: float) -> float:
            return top + 260 - 220 * (math.log10(value) - y_low) / (y_high - y_low)

        parts = [f'<text x="{left}" y="{top + 24:g}">{self.title}</text>']
        for power in range(y_low, y_high + 1):
            at = y(10.0**power)
            parts.append(f'<path class="a" d="M{left} {at:.1f}h300"/>')
            parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
        for power in range(x_low, x_high + 1):
            at, name = x(10.0**power), f"10^{power}" if power > 2 else f"{10**power}"
            parts.append(f'<path class="a" d="M{at:.1f} {top + 40:g}V{top + 260:g}"/>')
            parts.append(f'<text x="{at:.1f}" y="{top + 280:g}" text-anchor="middle">{name}</text>')
        for line, points in self.lines.items():
            path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in sorted(points.items()))
            parts.append(f'<path d="M{path}" stroke="{colours[line]}" stroke-width="2"/>')
            dots = ((x(at), y(value)) for at, value in points.items())
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colours[line]}"/>' for a, b in dots]
        return parts


def draw(panels: Sequence[Panel], about: str) -> str:
    """Panels two abreast, and below them what the colours are; `about` is for those who cannot see it."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = dict(zip(names, COLOURS, strict=False))
    parts = [f"<style>{STYLE}</style>"]
    for at, panel in enumerate(panels):
        parts += panel.draw(60.0 + 380 * (at % 2), 300.0 * (at // 2), colours)
    bottom = 300 * (-(-len(panels) // 2) - 1) + 308
    for at, (name, colour) in enumerate(colours.items()):
        place = f'x="{60 + 240 * (at % 3)}" y="{bottom + 20 * (at // 3)}"'
        parts.append(f'<text {place} style="fill:{colour}">{name}</text>')
    size = f'viewBox="0 0 760 {bottom + 12 + 20 * (-(-len(names) // 3) - 1)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{about}">'
    return head + "".join(parts) + "</svg>\n"
