"""Runs that nobody played, for the report: as the simulator records them, at no cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from equifl.metrics import fairness, participation

MADE_WITH = {"versions": {"equifl": "0.1.0", "python": "3.11"}, "commit": None, "device": "x86_64"}
OBJECTIVES: dict[str, dict[str, float]] = {"divfl": {"G": 3.0}, "subtrunc": {"G": 3.0, "H": 0.5}}


def configuration(selectors: Sequence[str] = ("uniform", "subtrunc", "rota"), **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"rounds": 6, "clients": 20, "per_round": 4, "seeds": [0, 1, 2], "evaluate_every": 2}
    config |= {"signal_examples": None, "data": {"name": "synthetic", "path": None}}
    return config | {"selectors": {name: {} for name in selectors}} | more


def records(config: dict[str, Any], played: int | None = None) -> list[dict[str, Any]]:
    """The rows of so many rounds (default all), in the order of a run."""
    rng = np.random.default_rng(0)
    runs: dict[tuple[str, int], list[list[int]]] = {(n, s): [] for n in config["selectors"] for s in config["seeds"]}
    rows = []
    for round in range(config["rounds"] if played is None else played):
        for (name, seed), cohorts in runs.items():
            cohorts.append(rng.permutation(config["clients"])[: config["per_round"]].tolist())
            row = {"round": round, "selector": name, "seed": seed, "cohort": cohorts[-1], "local_loss": 1.0}
            row |= {"bytes_down": 1000, "bytes_up": 800}
            if name in OBJECTIVES:
                row["objective"] = OBJECTIVES[name]
            if (round + 1) % config["evaluate_every"] == 0 or round + 1 == config["rounds"]:
                row |= evaluation(rng.random(config["clients"]), cohorts)
            rows.append(row)
    return rows


def evaluation(accuracy: Any, cohorts: list[list[int]]) -> dict[str, Any]:
    measures = fairness(accuracy)
    counts = np.bincount(np.concatenate(cohorts), minlength=len(accuracy))
    client_accuracy = [round(100 * float(value), 4) for value in accuracy]
    fair = participation(counts, cohorts)
    return measures | {
        "accuracy": measures["accuracy_mean"],
        "client_accuracy": client_accuracy,
        "participation": fair,
    }
