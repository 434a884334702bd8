"""Tunes what the paper leaves open, on seeds 100 to 119, which are reported nowhere else.

    python -m tools.tuning --data-dir DATA [--data mnist] [--seeds 20] [--device cuda --at-once 20]

`SubTrunc()` has lam and b_factor, `UnionFL()` has mu_factor: factors, so that one default can serve any model.
Momentum has beta, with the server's learning rate at 1 - beta. The setting is that of tools/evidence.py. The means
over seeds, and the paired differences to DivFL (of rules: to the mean, both with Random) with their 95 % intervals, go
into results/tuning.json. An interrupted run goes on with the next seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from equifl.experiment.config import Server
from equifl.paper.tables import DATA
from equifl.sim.data.dataset import Dataset
from equifl.sim.simulation import load_data
from equifl.statistics import paired
from tools.evidence import configuration, play

FIRST_SEED = 100
LAMBDAS = (0.5, 1.0, 2.0, 5.0, 10.0)
TRUNCATIONS = ((2.0, 1.5), (5.0, 1.5), (5.0, 0.9), (10.0, 0.9), *((lam, 1.1) for lam in LAMBDAS))  # lam, b_factor
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0)  # mu_factor, with the default window
WINDOWS = (2, 10)  # with a mu_factor of 3
CANDIDATES = (10, 20, 30, 50)  # of Power-of-Choice, 10 clients a round
BETAS = (0.5, 0.9)
MEASURES = ("accuracy", "expected_dissimilarity")  # means over the last rounds
OUT = Path(__file__).parents[1] / "results" / "tuning.json"


def selectors() -> dict[str, dict[str, Any]]:
    """DivFL, to compare with, and every candidate; and Random, with which rules are compared."""
    found: dict[str, dict[str, Any]] = {"DivFL": {"class": "divfl"}, "Random": {"class": "uniform"}}
    for lam, factor in TRUNCATIONS:
        found[f"SubTrunc lam={lam:g} b_factor={factor:g}"] = {"class": "subtrunc", "lam": lam, "b_factor": factor}
    for penalty in PENALTIES:
        found[f"UnionFL mu_factor={penalty:g}"] = {"class": "unionfl", "mu_factor": penalty}
    for window in WINDOWS:
        found[f"UnionFL mu_factor=3 window={window}"] = {"class": "unionfl", "mu_factor": 3.0, "window": window}
    for candidates in CANDIDATES:
        found[f"Power-of-Choice candidates={candidates}"] = {"class": "power_of_choice", "candidates": candidates}
    return found


def play_seeds(data: str, dataset: Dataset, seeds: Iterable[int], device: str) -> dict[int, dict[str, list[float]]]:
    """By seed, of every candidate the measures, means over the last rounds."""
    config = configuration(data, "mean", selectors(), seeds)
    found = play(config, dataset, device=device)
    for beta in BETAS:
        name = f"momentum beta={beta:g}"
        server = Server(aggregate={"class": "momentum", "beta": beta}, lr=round(1 - beta, 6))
        ruled = play(replace(config, selectors={name: {"class": "uniform"}}, server=server), dataset, device=device)
        found = {seed: runs | ruled[seed] for seed, runs in found.items()}
    return {
        seed: {name: [run["last"][measure][1] for measure in MEASURES] for name, run in runs.items()}
        for seed, runs in found.items()
    }


def summary(seeds: Iterable[dict[str, list[float]]]) -> dict[str, Any]:
    """Of every candidate the means, and how much it differs from what it is compared with."""
    played = list(seeds)
    made: dict[str, Any] = {}
    for name in played[0]:
        baseline = "Random" if name.startswith("momentum") else "DivFL"
        for place, measure in enumerate(MEASURES):
            here, there = ([found[which][place] for found in played] for which in (name, baseline))
            row = made.setdefault(name, {"seeds": len(played)})
            row[measure] = round(sum(here) / len(here), 2)
            row[f"{measure} less {baseline}"] = [round(number, 2) for number in paired(here, there)]
    return made


def best(kind: str, tuned: Mapping[str, Mapping[str, Any]]) -> str:
    """The candidate of a kind that is the least dissimilar, by the sum over data sets."""
    names = [name for name in tuned[DATA[0]] if name.startswith(f"{kind} ")]
    return min(names, key=lambda name: float(sum(rows[name]["expected_dissimilarity"] for rows in tuned.values())))


def main() -> None:
    """Play what is missing, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--data", choices=DATA, action="append")
    parser.add_argument("--seeds", type=int, default=20, help="seeds 100 to 99 + N")
    parser.add_argument("--work", type=Path, default=Path("runs/tuning"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--at-once", type=int, default=1, help="seeds that are played together")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for data in given.data or DATA:
        seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
        paths = {seed: given.work / f"{data}-{seed}.json" for seed in seeds}
        missing = [seed for seed in seeds if not paths[seed].exists()]
        if missing:
            dataset = load_data(configuration(data, "mean", {"uniform": {}}, missing), given.data_dir)
            for some in (missing[i : i + given.at_once] for i in range(0, len(missing), given.at_once)):
                for seed, found in play_seeds(data, dataset, some, given.device).items():
                    paths[seed].write_text(json.dumps(found))
                print(data, *some, flush=True)
        rows = summary(json.loads(path.read_text()) for path in paths.values())
        content = json.loads(OUT.read_text()) if OUT.exists() else {}
        OUT.write_text(json.dumps({**content, data: rows}, indent=1) + "\n")
        for name, row in rows.items():
            print(f"{data:8} {name:32} {row}")


if __name__ == "__main__":
    main()
