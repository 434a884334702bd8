"""Who is selected when on the digits, by every selector: a small result, and a figure of it for each page.

python -m tools.cohorts            # plays selectors that are not in results/cohorts.json yet, and draws all figures
python -m tools.cohorts --all      # plays all of them again
python -m tools.cohorts --draw     # draws alone

One run a selector, with its defaults and seed 0: enough to see how it chooses, not how well (see docs/results.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from equifl.experiment.config import Config
from equifl.selectors import SELECTORS
from equifl.sim.data import load_dataset
from equifl.sim.loop.environment import Environment, resolved
from equifl.sim.simulation import simulate

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES = ROOT / "results" / "cohorts.json", ROOT / "docs" / "figures" / "cohorts"
SETTING: dict[str, Any] = {"rounds": 60, "clients": 30, "per_round": 5, "seeds": [0], "evaluate_every": 60}
SPEED = {"step_seconds": 0.1, "sigma": 1.0}  # a clock, for those who look at it: the others choose as without it
MEASURES = ("accuracy", "dissimilarity", "worst10")
LEFT, TOP, ROW, STEP, COUNTS = 44, 30, 11, 9, 110  # of the drawing


def play(names: list[str], *, rounds: int = SETTING["rounds"]) -> dict[str, Any]:
    """By selector: its parameters, its cohorts, and at the last round the usual measures and evenness of turns."""
    settings = SETTING | {"rounds": rounds, "selectors": {name: {} for name in names}, "speed": SPEED}
    records = simulate(**settings).records
    found = {}
    for name in names:
        own = [record for record in records if record["selector"] == name]
        last = own[-1]
        measured = {key: round(last[key], 1) for key in MEASURES} | {"gini": round(last["participation"]["gini"], 2)}
        made = repr(SELECTORS[name]())
        found[name] = {"made": made, "cohorts": [sorted(record["cohort"]) for record in own], **measured}
    return found


def classes() -> list[list[int]]:
    """The classes that each client has, in the partition that all selectors share."""
    dataset = load_dataset("digits")
    config = resolved(Config(clients=SETTING["clients"]), dataset)
    parts = Environment.make(config, dataset, SETTING["seeds"][0]).partition
    return [np.unique(dataset.y_train[ids]).tolist() for ids in parts.train]


def caption(name: str, results: Path = RESULTS) -> str:
    """What the run came to, in a sentence under the figure."""
    one = json.loads(results.read_text())["selectors"][name]
    times = np.bincount(np.concatenate(one["cohorts"]).astype(int), minlength=SETTING["clients"])
    never = int((times == 0).sum())
    seldom = f"{never} of them never" if never else f"the least selected {times.min()} times"
    return (
        f"One run with the defaults: {SETTING['clients']} clients with two digits each (sorted by their digits), "
        f"{SETTING['per_round']} a round, {SETTING['rounds']} rounds. "
        f"Clients were selected up to {times.max()} times, {seldom} (Gini {one['gini']:.2f}). "
        f"The last model has {one['accuracy']:.1f} % accuracy, dissimilarity {one['dissimilarity']:.1f}, "
        f"and {one['worst10']:.1f} % for the worst tenth of clients. One seed shows how it chooses, not how well: "
        "[the results](../results.md) compare selectors over many seeds.\n"
    )


def svg(name: str, results: dict[str, Any]) -> str:
    """A row a client, a mark where it was selected, and how often at the right; readable on light and on dark."""
    held, cohorts = results["classes"], results["selectors"][name]["cohorts"]
    order = sorted(range(len(held)), key=lambda client: (held[client], client))
    row = {client: at for at, client in enumerate(order)}
    times = np.bincount(np.concatenate(cohorts).astype(int), minlength=len(held))
    right, bottom = LEFT + STEP * len(cohorts), TOP + ROW * len(held)
    parts = [_text(LEFT - 6, TOP + ROW * row[c] + 9, " ".join(map(str, held[c])), "end") for c in order]
    parts += [_text(LEFT + STEP * t, bottom + 16, str(t), "middle") for t in range(0, len(cohorts) + 1, 10)]
    parts += [
        _text(LEFT - 6, 18, "digits", "end"),
        _text(LEFT, 18, "round by round"),
        _text(right + 16, 18, "times selected"),
    ]
    marks = "".join(
        f"M{LEFT + STEP * t} {TOP + ROW * row[client] + 1}h{STEP - 1}v{ROW - 2}h-{STEP - 1}z"
        for t, cohort in enumerate(cohorts)
        for client in cohort
    )
    longest = max(1, int(times.max()))
    bars = "".join(
        f"M{right + 16} {TOP + ROW * row[c] + 1}h{(COUNTS - 40) * times[c] / longest:.1f}v{ROW - 2}H{right + 16}z"
        for c in order
    )
    counts = [
        _text(right + 20 + (COUNTS - 40) * times[c] / longest, TOP + ROW * row[c] + 9, str(times[c])) for c in order
    ]
    style = "text{font:9px sans-serif;fill:#777}.c{fill:#0072b2}.n{fill:#d55e00}.g{fill:#8881}"
    about = f"Clients selected by {name} in each of {len(cohorts)} rounds on the digits, and how often each was"
    size = f"0 0 {right + 16 + COUNTS} {bottom + 24}"
    field = f'<rect class="g" x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="{about}">'
    drawn = f'<path class="c" d="{marks}"/><path class="n" d="{bars}"/>'
    return "".join([head, f"<style>{style}</style>", field, drawn, *parts, *counts]) + "</svg>\n"


def _text(x: float, y: float, content: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{content}</text>'


def draw() -> None:
    """All figures of the committed result, and no others."""
    results = json.loads(RESULTS.read_text())
    FIGURES.mkdir(parents=True, exist_ok=True)
    for old in FIGURES.glob("*.svg"):
        old.unlink()
    for name in results["selectors"]:
        (FIGURES / f"{name}.svg").write_text(svg(name, results))


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="play all selectors again")
    parser.add_argument("--draw", action="store_true", help="play none")
    given = parser.parse_args()
    kept: dict[str, Any] = {} if given.all or not RESULTS.exists() else json.loads(RESULTS.read_text())["selectors"]
    missing = [] if given.draw else [name for name in SELECTORS if name not in kept]
    if missing:
        kept |= play(missing)
        setting = {**SETTING, "data": "digits"}
        ordered = {name: kept[name] for name in SELECTORS}
        lines = json.dumps({"setting": setting, "classes": classes(), "selectors": ordered}, separators=(",", ":"))
        RESULTS.write_text(lines.replace('"made"', '\n"made"') + "\n")
    draw()
    print(f"played: {', '.join(missing) or 'none'}; drawn: {len(list(FIGURES.glob('*.svg')))} figures in {FIGURES}")


if __name__ == "__main__":
    main()
