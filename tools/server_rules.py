"""What the server can do instead of selection, on the digits: rules and selectors, with and without averaging.

python -m tools.server_rules         # from the root of the repository: plays it, and writes the results and the table

Five seeds, the setting of `equifl run`. The figures are means over the last N / k rounds, each
evaluated. The table is on docs/aggregators.md, between its markers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equifl.experiment.endpoint import cycle
from equifl.experiment.measures import chosen_measures, with_test_classes
from equifl.signals import Floats
from equifl.sim.simulation import simulate
from equifl.statistics import holm, interval, p_value, paired

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "server_rules.json", ROOT / "docs" / "aggregators.md"
EARLY = 3  # rounds after which the loss is kept, for a test to play again
SETTING: dict[str, Any] = {"rounds": 60, "clients": 30, "per_round": 5, "evaluate_every": 60, "engine": "compiled"}
SEEDS = [0, 1, 2, 3, 4]
SELECTORS = ("uniform", "reshuffle", "rota")
TITLES: Mapping[str, str] = {"uniform": "Random", "reshuffle": "Reshuffle", "rota": "Rota", "everybody": "everybody"}
RULES: Mapping[str, Any] = {
    "mean": "mean",
    "by loss": "loss",
    "q-FedAvg": "q_fedavg",
    "momentum": {"class": "momentum", "beta": 0.5},
    "memory": "memory",
    "memory by loss": {"class": "memory", "q": 1.0},
}
AVERAGED = ("mean", "memory", "memory by loss")  # those that are also evaluated as the mean of the last models
MEASURES = ("accuracy", "dissimilarity", "expected_dissimilarity", "worst10")
_START, _END = "<!-- table: server rules -->", "<!-- end -->"


def settings(rule: str, average: int, *, everybody: bool = False) -> dict[str, Any]:
    """The keywords of one experiment; momentum has the server's rate that keeps the length of its steps."""
    server = {"aggregate": RULES[rule], "average_last": average, "lr": 0.5 if rule == "momentum" else 1.0}
    found = SETTING | {"server": server, "selectors": {name: {} for name in SELECTORS}, "evaluate_last": 6}
    return found | ({"per_round": SETTING["clients"], "selectors": {"uniform": {}}} if everybody else {})


def play(given: Mapping[str, Any], seeds: Sequence[int], *, everybody: bool = False) -> dict[str, Any]:
    """By selector and seed: every measure as the mean over the last N / k evaluations."""
    records = simulate(**given, seeds=list(seeds), progress=False).records
    columns, last = chosen_measures(MEASURES), cycle(SETTING)
    found: dict[str, dict[str, Any]] = {}
    for row in with_test_classes(records):
        if "accuracy" in row:
            name = "everybody" if everybody else row["selector"]
            run = found.setdefault(name, {}).setdefault(str(row["seed"]), {measure: [] for measure in MEASURES})
            for column in columns:
                run[column.name].append(column.read(row))
    for runs in found.values():
        for run in runs.values():
            run |= {name: round(float(np.mean(run[name][-last:])), 4) for name in MEASURES}
    return found


def early_losses(rule: str, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """The loss over all clients after the first rounds, by selector and seed; by the engine that every machine has."""
    given = settings(rule, 1) | {"rounds": EARLY, "evaluate_last": None, "engine": "torch"}
    records = simulate(**given, seeds=list(seeds), progress=False).records
    found: dict[str, dict[str, float]] = {}
    for row in records:
        if "global_loss" in row:
            found.setdefault(row["selector"], {})[str(row["seed"])] = round(row["global_loss"], 6)
    return found


def table(results: Mapping[str, Any]) -> str:
    """In Markdown: a row a rule and averaging, a column a selector; and the two claims, judged."""
    names = list(TITLES)
    head = ["rule", "model", *(TITLES[name] for name in names)]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---|" * len(names)]
    for key, runs in results["late"].items():
        rule, _, average = key.partition(" / ")
        cells = [_cell(runs[name]) if name in runs else "" for name in names]
        model = "last" if average == "1" else f"mean of the last {average}"
        lines.append(f"| {rule} | {model} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_claims(results["late"])])


def _cell(runs: Mapping[str, Mapping[str, float]]) -> str:
    means = {name: interval(_values(runs, name)) for name in MEASURES}
    shown = [f"{means[name][0]:.1f} ± {means[name][1]:.1f}" for name in ("accuracy", "expected_dissimilarity")]
    return " / ".join(shown)


def _values(runs: Mapping[str, Mapping[str, float]], measure: str) -> Floats:
    return np.array([runs[str(seed)][measure] for seed in SEEDS])


def _claims(late: Mapping[str, Any]) -> list[str]:
    """Paired differences in dissimilarity without noise, and in accuracy; p by Holm's method over all of them."""
    one, six = "1", str(cycle(SETTING))
    pairs = {
        "Random with memory less Rota": (("memory", one, "uniform"), ("mean", one, "rota")),
        "Rota with memory and averaging less Rota": (("memory", six, "rota"), ("mean", one, "rota")),
        "Rota with memory and averaging less Rota with averaging": (("memory", six, "rota"), ("mean", six, "rota")),
        "Rota with memory by loss and averaging less everybody": (
            ("memory by loss", six, "rota"),
            ("mean", one, "everybody"),
        ),
    }
    figures = []
    for text, sides in pairs.items():
        for measure in ("accuracy", "expected_dissimilarity"):
            here, there = (_values(late[f"{rule} / {average}"][name], measure) for rule, average, name in sides)
            figures.append((text, paired(here, there), p_value(here, there)))
    corrected = holm([p for _, _, p in figures])
    lines = ["| difference, in pairs | accuracy | dissimilarity without noise |", "|---|---|---|"]
    for place in range(0, len(figures), 2):
        cells = [
            f"{mean:+.1f} ± {half:.1f}{' *' if p < 0.05 else ''}"
            for (_, (mean, half), _), p in zip(figures[place : place + 2], corrected[place : place + 2], strict=True)
        ]
        lines.append(f"| {figures[place][0]} | {cells[0]} | {cells[1]} |")
    return lines


def with_table(page: str, made: str) -> str:
    """The page with this table between its markers."""
    start, end = page.index(_START) + len(_START), page.index(_END)
    return f"{page[:start]}\n\n{made}\n\n{page[end:]}"


def main() -> None:
    """Play everything, and write the results and the table."""
    late: dict[str, Any] = {}
    for average in (1, cycle(SETTING)):
        for rule in RULES if average == 1 else AVERAGED:
            late[f"{rule} / {average}"] = play(settings(rule, average), SEEDS)
            print(rule, average, flush=True)
        everybody = play(settings("mean", average, everybody=True), SEEDS, everybody=True)
        late[f"mean / {average}"] |= everybody
    early = {rule: early_losses(rule, SEEDS[:1]) for rule in RULES}
    content = {"setting": SETTING, "seeds": SEEDS, "early": early, "late": late}
    RESULTS.write_text(json.dumps(content, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), table(content)))


if __name__ == "__main__":
    main()
