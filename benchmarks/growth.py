"""How the cost of a round grows: rounds per second against cohort, clients, local steps and simultaneous runs.

    make bench-growth                       # or: python benchmarks/growth.py [--quick] [--only AXIS ...]

From 100 clients, 10 a round, 10 steps of batch 32 and one run, one of these grows at a time: k, the cohort; N, the
clients; E, the steps; runs, at the same time. Lines: the compiled engine and the torch one, each with a selector that
needs no signals, and the compiled one with Rota, which needs updates. LeNet on random images: 28x28, 600 a client;
where N grows 8x8, 32 a client, so that 100,000 clients fit into memory, and Rota gets sketches of 256 numbers. A point
is the median of some rounds after the first. Beside each line the exponent e with which its seconds a round grow as
x^e over the last four points: 1 is a straight line. `--only` measures some axes again; the others stay as they are in
the file. The figure and the table of docs/performance.md are written from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from drawing import COLOURS, Axis, Panel, fill_in, picture

from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.federation import Federation

ROOT = Path(__file__).resolve().parent.parent
LINES = {
    "compiled": ("compiled", "uniform"),
    "torch": ("torch", "uniform"),
    "compiled, Rota": ("compiled", "rota"),
}
AXES: dict[str, tuple[int, ...]] = {
    "k": (1, 2, 5, 10, 20, 50, 100),
    "N": (100, 1_000, 10_000, 100_000),
    "E": (1, 2, 5, 10, 20, 50, 100),
    "runs": (1, 2, 5, 10, 20, 50),
}
TITLES = {"k": "clients a round, k", "N": "clients, N", "E": "local steps, E", "runs": "runs at the same time"}
Table = dict[str, dict[str, dict[float, float]]]  # axis, line, x: rounds a second


def random_data(axis: str, n: int) -> Dataset:
    """Noise: what it costs does not depend on what is in it."""
    shape, examples = ((1, 8, 8), 32) if axis == "N" else ((1, 28, 28), 600)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n * examples, *shape), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    return Dataset("made up", x, y, x[:n], y[:n], 10)


def seconds_a_round(axis: str, value: int, line: str, dataset: Dataset) -> float:
    at = {"k": 10, "N": 100, "E": 10, "runs": 1} | {axis: value}
    engine, selector = LINES[line]
    never = 10**6  # evaluated
    settings = [f"rounds={never}", f"evaluate_every={never}", f"clients={at['N']}", f"per_round={at['k']}"]
    settings += [f"seeds={list(range(at['runs']))}", f"train={{steps={at['E']}, batch_size=32, lr=0.01}}"]
    settings += ["data={partition='iid'}", f"selectors={{{selector}={{}}}}", f"engine={engine}"]
    settings += ["sketch=256"] * (axis == "N" and selector == "rota")
    federation = Federation(Config.load(None, settings), dataset, device="cpu")
    federation.play()
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < 1 and len(taken) < 25):
        start = time.perf_counter()
        federation.play()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(axes: list[str], quick: bool) -> Iterator[tuple[str, str, int, float]]:
    """Axis, line, x, rounds a second."""
    for axis in axes:
        for value in AXES[axis][:: 3 if quick else 1]:
            dataset = random_data(axis, value if axis == "N" else 100)
            for line in LINES:
                yield axis, line, value, 1 / seconds_a_round(axis, value, line, dataset)


def exponent(points: dict[float, float]) -> float:
    """Seconds a round grow as x to this: a straight line through the last four points, on logarithmic axes."""
    x, rate = np.log(sorted(points.items())[-4:]).T
    return -float(np.polyfit(x, rate, 1)[0])


def figure(found: Table) -> str:
    """A panel an axis, two abreast."""
    colours = dict(zip(LINES, COLOURS, strict=False))
    panels = []
    for at, (axis, lines) in enumerate(found.items()):
        rates = [rate for points in lines.values() for rate in points.values()]
        up = Axis.powers(math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates))))
        first, last = AXES[axis][0], AXES[axis][-1]
        across = Axis.powers(int(math.log10(first)), math.ceil(math.log10(last)), "10^{}" if last > 999 else "")
        title = f"rounds per second against {TITLES[axis]}"
        panel = Panel(60 + 380 * (at % 2), title, across, up, top=300 * (at // 2))
        for line, points in lines.items():
            panel.line(points, colours[line])
        panels.append(panel)
    return picture(
        panels, colours.items(), "Rounds per second against cohort, clients, local steps and simultaneous runs"
    )


def table(found: Table) -> str:
    """The ends of every line; the figure has what is between."""
    head = " | ".join(f"{line}, rounds/s | exponent" for line in LINES)
    rows = [f"| what grows | from - to | {head} |", "|---|---:|" + "---:|---:|" * len(LINES)]
    for axis, lines in found.items():
        first, *_, last = sorted(lines["compiled"])
        cells = [TITLES[axis], f"{first:,} - {last:,}"]
        for line in LINES:
            cells += [f"{lines[line][first]:.3g} - {lines[line][last]:.3g}", f"{exponent(lines[line]):.2f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def read(file: Path) -> Table:
    """What is in a file of results; JSON's keys are text."""
    rates = json.loads(file.read_text())["rounds_per_second"]
    return {a: {line: {int(x): r for x, r in points.items()} for line, points in b.items()} for a, b in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer points; printed only")
    parser.add_argument("--only", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "growth.json")
    options = parser.parse_args()
    before = read(options.out) if options.out.exists() and not options.quick else {}
    new: Table = {axis: {line: {} for line in LINES} for axis in options.only}
    found = {axis: (before | new)[axis] for axis in AXES if axis in before | new}
    for axis, line, value, rate in measure(options.only, options.quick):
        found[axis][line][value] = rate
        print(f"{axis:6} {value:8,} {line:12} {rate:10.3f} rounds/s", flush=True)
    print(table(found))
    if options.quick:
        return
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    result = {"command": "make bench-growth", "machine": machine, "rounds_per_second": found}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    (ROOT / "docs" / "figures" / "growth.svg").write_text(figure(found))
    fill_in(ROOT / "docs" / "performance.md", {"growth": table(found)})


if __name__ == "__main__":
    main()
