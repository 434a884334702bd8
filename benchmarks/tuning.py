"""Tunes the parameters that the paper leaves open, on seeds 100 to 119, which are reported nowhere else.

`SubTrunc()` has lam and b_factor, `UnionFL()` has mu_factor: factors, so that one default can serve any model. The
setting is the paper's, on MNIST and CIFAR-10, with r = 10 candidates a step. For each data set the means over seeds of
accuracy and dissimilarity, and the paired difference to DivFL with its 95 % interval, go into results/tuning.json.
An interrupted run goes on where it stopped:

    python benchmarks/tuning.py --data-dir DATA [--only mnist] [--work runs/tuning]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from equifl import simulate
from equifl.experiment.results import Results
from equifl.paper.tables import DATA, configuration
from equifl.statistics import paired

SEEDS = range(100, 120)
LAMBDAS, FACTORS, PENALTIES = (1.0, 2.0, 5.0, 10.0), (1.1, 1.5), (0.3, 1.0, 3.0, 10.0)
OUT = Path(__file__).parent / "results" / "tuning.json"


def selectors() -> dict[str, dict[str, Any]]:
    """DivFL, to compare with, and every candidate."""
    found: dict[str, dict[str, Any]] = {"divfl": {"sample": 10}}
    for lam in LAMBDAS:
        for factor in FACTORS:
            table = {"class": "subtrunc", "lam": lam, "b_factor": factor, "sample": 10}
            found[f"subtrunc lam={lam:g} b_factor={factor:g}"] = table
    for penalty in PENALTIES:
        found[f"unionfl mu_factor={penalty:g}"] = {"class": "unionfl", "mu_factor": penalty, "sample": 10}
    return found


def summary(results: Results) -> dict[str, Any]:
    """Of every selector the means, and how much it differs from DivFL."""
    final = results.final().set_index(["selector", "seed"])
    found: dict[str, Any] = {}
    for name in results.config["selectors"]:
        found[name] = {}
        for measure in ("accuracy", "dissimilarity"):
            mine, theirs = (final.loc[one, measure].loc[list(SEEDS)].tolist() for one in (name, "divfl"))
            found[name][measure] = round(sum(mine) / len(mine), 2)
            found[name][f"{measure} less DivFL"] = [round(number, 2) for number in paired(mine, theirs)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--only", choices=DATA)
    parser.add_argument("--work", type=Path, default=Path("runs/tuning"))
    arguments = parser.parse_args()
    for data in DATA:
        if arguments.only not in (None, data):
            continue
        config = configuration(data, ["divfl"], SEEDS)
        results = simulate(
            config, selectors=selectors(), out=arguments.work / data, data_dir=arguments.data_dir, device="cpu"
        )
        found = json.loads(OUT.read_text()) if OUT.exists() else {}
        found[data] = {"made_with": results.made_with, "selectors": summary(results)}
        OUT.write_text(json.dumps(found, indent=1) + "\n")
        for name, row in found[data]["selectors"].items():
            print(f"{data:8} {name:32} {row}")


if __name__ == "__main__":
    main()
