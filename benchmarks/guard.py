"""What the guard changes where nobody lies: seats and accuracy in pairs of runs, with and without it.

    python benchmarks/guard.py --data-dir DIR  # MNIST; 3 minutes; writes results/guard.json, docs/attacks.md
    python benchmarks/guard.py --tables  # the table alone, from the stored results

100 clients, 10 in each of 60 rounds, a logistic regression, the six selectors with the paper's parameters; SubTrunc,
UnionFL and Oort by their defaults, too. Both runs of a pair have the same clients, initial model and batches. The
simulator gives the sizes to the server.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from drawing import fill_in

from equifl.experiment.config import Config
from equifl.statistics import holm, p_value, paired

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "guard.json"
PAGE = ROOT / "docs" / "attacks.md"
SEEDS = range(10)
CLIENTS, COHORT, ROUNDS = 100, 10, 60
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "two classes": {"kind": "classes", "classes_per_client": 2},
    "Dirichlet 0.1": {"kind": "dirichlet", "alpha": 0.1},
    "unequal sizes": {"kind": "classes", "classes_per_client": 2, "sizes": "lognormal"},
}
SELECTORS: Mapping[str, Mapping[str, Any]] = {
    **Config().selectors,
    "subtrunc_default": {"class": "subtrunc"},
    "unionfl_default": {"class": "unionfl"},
    "oort": {},
}
MEASURES = {
    "accuracy": "accuracy, points",
    "dissimilarity": "dissimilarity, points",
    "gini": "Gini of seats",
    "top": "seats of the ten most selected, %",
}


def runs(setting: Mapping[str, Any], *, guard: bool, data_dir: Path | None) -> dict[str, Any]:
    """By selector and measure the figures of all seeds."""
    from equifl.sim.simulation import simulate  # needs torch, which the table does not

    table: dict[str, Any] = {
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "per_round": COHORT,
        "evaluate_every": ROUNDS,
        "seeds": list(SEEDS),
        "data": {"name": "mnist", "partition": dict(setting)},
        "train": {"model": "logistic", "steps": 10, "lr": 0.05},
        "server": {"guard": guard},
        "selectors": {name: dict(options) for name, options in SELECTORS.items()},
    }
    records = simulate(Config.from_table(table), data_dir=data_dir, device="cpu", progress=False).records
    found: dict[str, Any] = {}
    for name in table["selectors"]:
        for seed in SEEDS:
            mine = [record for record in records if record["selector"] == name and record["seed"] == seed]
            seats = np.bincount([client for record in mine for client in record["cohort"]], minlength=CLIENTS)
            last = mine[-1] | {"gini": mine[-1]["participation"]["gini"]}
            last["top"] = 100 * float(np.sort(seats)[-10:].sum() / seats.sum())
            for measure in MEASURES:
                found.setdefault(name, {}).setdefault(measure, []).append(round(last[measure], 4))
    return found


def measured(data_dir: Path | None) -> dict[str, Any]:
    """Both runs of every pair, by setting."""
    found = {}
    for name, setting in SETTINGS.items():
        found[name] = {str(guard): runs(setting, guard=guard, data_dir=data_dir) for guard in (False, True)}
        print(name, flush=True)
    return found


class Change(NamedTuple):
    """A figure without the guard, and its change by it with the half width of its 95 % interval.

    It is decided if p, corrected by Holm's method over the whole table, is below 5 %.
    """

    setting: str
    selector: str
    measure: str
    without: float
    mean: float
    half: float
    decided: bool


def changes(found: Mapping[str, Any]) -> list[Change]:
    """Every cell of the table."""
    pairs = {
        (setting, name, measure): (both["True"][name][measure], off)
        for setting, both in found.items()
        for name, values in both["False"].items()
        for measure, off in values.items()
    }
    corrected = holm([p_value(on, off) for on, off in pairs.values()])
    return [
        Change(*where, float(np.mean(off)), *paired(on, off), p < 0.05)
        for (where, (on, off)), p in zip(pairs.items(), corrected, strict=True)
    ]


def table(found: Mapping[str, Any]) -> str:
    """A row a setting and selector; changes that are decided are in bold."""
    rows = changes(found)
    lines = ["| | | " + " | ".join(MEASURES.values()) + " |", "|---|---|" + "---|" * len(MEASURES)]
    for setting, name in dict.fromkeys((row.setting, row.selector) for row in rows):
        cells = []
        for row in rows:
            if (row.setting, row.selector) != (setting, name):
                continue
            digits = 3 if row.measure == "gini" else 1
            text = f"{row.mean:+.{digits}f} ± {row.half:.{digits}f}"
            cells.append(f"{row.without:.{digits}f}, " + (f"**{text}**" if row.decided else text))
        lines.append(f"| {setting} | `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where MNIST is; by default where `equifl data` puts it")
    parser.add_argument("--tables", action="store_true", help="write the table from the stored results")
    arguments = parser.parse_args()
    if not arguments.tables:
        RESULT.write_text(json.dumps(measured(arguments.data_dir), indent=1) + "\n")
    fill_in(PAGE, {"honest": table(json.loads(RESULT.read_text()))})


if __name__ == "__main__":
    main()
