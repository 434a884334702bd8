"""Tunes the parameters that the paper leaves open, on seeds 100 to 119, which are reported nowhere else.

`SubTrunc()` has lam and b_factor, `UnionFL()` has mu_factor: factors, so that one default can serve any model. The
setting is the paper's, on MNIST and CIFAR-10, with r = 10 candidates a step. For each data set the means over seeds of
accuracy and dissimilarity, and the paired difference to DivFL with its 95 % interval, go into results/tuning.json.
An interrupted run goes on with the next seed:

    python benchmarks/tuning.py --data-dir DATA [--only mnist] [--work runs/tuning]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from equifl import simulate
from equifl.paper.tables import DATA, configuration
from equifl.sim.simulation import load_data
from equifl.statistics import paired

SEEDS = range(100, 120)
LAMBDAS, FACTORS, PENALTIES = (1.0, 2.0, 5.0, 10.0), (1.1, 1.5), (0.3, 1.0, 3.0, 10.0)
MEASURES = ("accuracy", "dissimilarity")
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


def final(data: str, data_dir: Path | None, work: Path) -> dict[str, dict[str, list[float]]]:
    """Of every selector and measure the values after the last round, seed by seed; each seed's are kept in `work`."""
    found: dict[str, dict[str, list[float]]] = {name: {measure: [] for measure in MEASURES} for name in selectors()}
    dataset = None
    for seed in SEEDS:
        kept = work / f"{data}-{seed}.json"
        if not kept.exists():
            config = configuration(data, ["divfl"], [seed])
            dataset = load_data(config, data_dir) if dataset is None else dataset
            rows = simulate(config, dataset=dataset, selectors=selectors(), device="cpu", progress=False).final()
            work.mkdir(parents=True, exist_ok=True)
            kept.write_text(
                json.dumps({row["selector"]: [row[m] for m in MEASURES] for row in rows.to_dict("records")})
            )
        for name, values in json.loads(kept.read_text()).items():
            for measure, value in zip(MEASURES, values, strict=True):
                found[name][measure].append(value)
    return found


def summary(found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Of every selector the means, and how much it differs from DivFL."""
    made: dict[str, Any] = {name: {} for name in found}
    for name, values in found.items():
        for measure in MEASURES:
            difference = paired(values[measure], found["divfl"][measure])
            made[name][measure] = round(sum(values[measure]) / len(values[measure]), 2)
            made[name][f"{measure} less DivFL"] = [round(number, 2) for number in difference]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--only", choices=DATA)
    parser.add_argument("--work", type=Path, default=Path("runs/tuning"))
    arguments = parser.parse_args()
    for data in DATA:
        if arguments.only not in (None, data):
            continue
        rows = summary(final(data, arguments.data_dir, arguments.work))
        found = json.loads(OUT.read_text()) if OUT.exists() else {}
        OUT.write_text(json.dumps({**found, data: rows}, indent=1) + "\n")
        for name, row in rows.items():
            print(f"{data:8} {name:32} {row}")


if __name__ == "__main__":
    main()
