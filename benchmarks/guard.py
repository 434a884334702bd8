"""What the guard changes where nobody lies: seats and accuracy in pairs of runs, with and without it.

    python benchmarks/guard.py --data-dir DIR  # MNIST; 10 minutes on a core; results/guard.json, docs/attacks.md
    python benchmarks/guard.py --tables  # the table alone, from the stored results

100 clients, 10 in each of 60 rounds, a logistic regression, the six selectors with the paper's parameters, and Oort.
Both runs of a pair have the same clients, initial model and batches. The simulator gives the sizes to the server.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in

from equifl.experiment.config import Config
from equifl.statistics import excludes_zero, paired

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
        "selectors": Config().selectors | {"oort": {}},
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


def changes(found: Mapping[str, Any]) -> list[tuple[str, str, str, float, float, float]]:
    """Setting, selector, measure; its mean without the guard, and the paired change with its 95 % half width."""
    rows = []
    for setting, both in found.items():
        for name, values in both["False"].items():
            for measure, off in values.items():
                mean, half = paired(both["True"][name][measure], off)
                rows.append((setting, name, measure, float(np.mean(off)), mean, half))
    return rows


def table(found: Mapping[str, Any]) -> str:
    """A row a setting and selector; changes whose interval excludes 0 are in bold."""
    rows = changes(found)
    lines = ["| | | " + " | ".join(MEASURES.values()) + " |", "|---|---|" + "---|" * len(MEASURES)]
    for setting, name in dict.fromkeys(row[:2] for row in rows):
        cells = []
        for _, _, measure, off, mean, half in (row for row in rows if row[:2] == (setting, name)):
            digits = 3 if measure == "gini" else 1
            text = f"{mean:+.{digits}f} ± {half:.{digits}f}"
            shown = f"**{text}**" if half > 0 and excludes_zero(mean, half) else text
            cells.append(f"{off:.{digits}f}, {shown}")
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
