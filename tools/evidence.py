"""The runs behind docs/results.md: MNIST and CIFAR-10 in the paper's setting, from a cold start.

    python -m tools.evidence --data-dir DATA --seeds 20 [--data mnist] [--group memory] [--selector rota]
    python -m tools.evidence --data-dir DATA --seeds 20 --device cuda --at-once 10 --processes 12

plays what is missing, `--at-once` seeds of a group together, and writes results/evidence/. Stopped, it goes on with
the next group. A run takes 5 s of a core on MNIST and 10 s on CIFAR-10, and ten times as much where everybody trains.

A run is kept small: figures of the model after the last round and their mean over the last N / k rounds, both also of
the mean of the last N / k models, some rounds on the way, and each client's accuracy at the end. Variants of the
paper's setting are those of equifl/paper/tables.py, some of them, with some selectors and rules.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equifl import metrics
from equifl.experiment.config import Config
from equifl.experiment.endpoint import cycle
from equifl.paper.tables import DATA, LAMBDAS, SETTINGS, TABLE_1_LAMBDA, VARIANTS, WINDOWS, subtrunc, unionfl
from equifl.selectors import SELECTORS
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.federation import Federation
from equifl.sim.loop.runs import Run
from equifl.sim.players import made_with
from equifl.sim.simulation import load_data

FOLDER = Path(__file__).parents[1] / "results" / "evidence"
CLIENTS, PER_ROUND, EVERY = 100, 10, 10
MEASURES = ("accuracy", "dissimilarity", "expected_dissimilarity", "worst10")
FACTOR_LAMBDAS = (0.1, 0.5, 0.95, 2.0, 5.0)  # of SubTrunc with its truncation read as a factor

# Server rules, with the server's learning rate. Momentum's keeps the length of a step.
RULES: Mapping[str, tuple[Any, float]] = {
    "mean": ("mean", 1.0),
    "by loss": ("loss", 1.0),
    "q-FedAvg": ("q_fedavg", 1.0),
    "momentum": ({"class": "momentum", "beta": 0.5}, 0.5),
    "memory": ("memory", 1.0),
    "memory by loss": ({"class": "memory", "q": 1.0}, 1.0),
}
OWN_WEIGHTS = "own weights"  # those of a selector, as its authors have it
AGGREGATES = {**RULES, OWN_WEIGHTS: ("selector", 1.0)}
SAME_WITH_EVERYBODY = {"memory": "mean", "memory by loss": "by loss"}  # if all reply, nothing remembered is left
WITH_RULES = ("uniform", "reshuffle", "power_of_choice", "subtrunc", "rota")
EVERYBODY = "everybody: "
BEYOND = ("dirichlet_0.1", "dirichlet_0.5", "unequal", "online_0.3", "long")  # a variant of the paper's setting each
BEYOND_SELECTORS = ("uniform", "reshuffle", "power_of_choice", "divfl", "subtrunc", "unionfl", "rota", "balanced_loss")


def house() -> dict[str, dict[str, Any]]:
    """Every selector, as a user gets it without parameters; Balanced also with its other preference."""
    return {name: {} for name in SELECTORS} | {"balanced_loss": {"class": "balanced", "prefer": "loss"}}


def paper(data: str) -> dict[str, dict[str, Any]]:
    """The rows of the paper's tables, r = 10 candidates a step; SubTrunc also with its truncation as a factor."""
    lam = TABLE_1_LAMBDA[data]
    found: dict[str, dict[str, Any]] = {"divfl_r10": {"class": "divfl", "sample": 10}}
    found |= {f"subtrunc_{value}": subtrunc(value) for value in LAMBDAS}
    found |= {f"subtrunc_{lam}_identity": subtrunc(lam, "identity")}
    found |= {f"unionfl_{window}": unionfl(window) for window in WINDOWS}
    factor = {"class": "subtrunc", "b_factor": 1.1, "sample": 10}
    return found | {f"subtrunc_factor_{value}": factor | {"lam": value} for value in FACTOR_LAMBDAS}


def groups(data: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Selectors by group; a group is played together. All but those of everybody have 10 clients a round."""
    found = {"mean": house(), "paper": paper(data)}
    found |= {rule: {name: {} for name in WITH_RULES} for rule in RULES if rule != "mean"}
    found |= {f"{EVERYBODY}{rule}": {"uniform": {}} for rule in RULES if rule not in SAME_WITH_EVERYBODY}
    for variant in BEYOND:
        found[f"{variant}: mean"] = {name: house()[name] for name in BEYOND_SELECTORS}
        found[f"{variant}: memory by loss"] = {"reshuffle": {}, "rota": {}}
        found[f"{variant}: {EVERYBODY}mean"] = {"uniform": {}}
    return found | as_published(data)


def as_published(data: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Where a selector's authors do more than its defaults: own weights, fresh signals, gamma that falls to 0."""
    return {
        OWN_WEIGHTS: {name: {} for name in ("divfl", "clustered_sampling", "optimal_sampling")},
        "fresh: mean": {"power_of_choice": {}},
        f"fresh: {OWN_WEIGHTS}": {"optimal_sampling": {}},
        "falling: mean": {"hicsfl": {"rounds": SETTINGS[data]["rounds"]}},
    }


def configuration(data: str, group: str, selectors: Mapping[str, Any], seeds: Iterable[int]) -> Config:
    """The paper's setting or a variant of it, from a cold start, with the rule of a group."""
    variant, everybody, rule = _read(group)
    aggregate, lr = AGGREGATES.get(rule, AGGREGATES["mean"])
    partition = {"kind": "classes", "classes_per_client": 3}
    changes = {"partition": partition, "rounds": SETTINGS[data]["rounds"] * (5 if variant == "long" else 1)}
    changes |= VARIANTS.get(variant, {})
    return Config.from_table(
        {
            **SETTINGS[data],
            "clients": CLIENTS,
            "per_round": CLIENTS if everybody else PER_ROUND,
            "evaluate_every": changes["rounds"],
            "seeds": list(seeds),
            "selectors": dict(selectors),
            "server": {"aggregate": aggregate, "lr": lr},
            "data": {"name": data, "partition": changes.pop("partition")},
            **changes,
        }
    )


def _read(group: str) -> tuple[str, bool, str]:
    """The variant that a group is of, whether everybody trains, and the server rule.

    >>> _read("long: everybody: mean"), _read("memory")
    (('long', True, 'mean'), ('paper', False, 'memory'))
    """
    *words, rule = group.split(": ")
    return next((word for word in words if word != EVERYBODY[:-2]), "paper"), EVERYBODY[:-2] in words, rule


def play(
    config: Config, dataset: Dataset, rounds: int | None = None, device: str = "cpu"
) -> dict[int, dict[str, dict[str, Any]]]:
    """What is kept of every run of a configuration, by seed and selector; of the first `rounds` if not of all."""
    federation = Federation(config, dataset, device=device)
    last = cycle({"clients": CLIENTS, "per_round": PER_ROUND})
    recent: list[torch.Tensor] = []
    kept: list[dict[str, Any]] = [{"rounds": {}, "bytes_up": 0} for _ in federation.runs]
    seen: list[dict[str, list[dict[str, float]]]] = [{"last": [], "averaged": []} for _ in kept]
    for round in range(1, (rounds or config.rounds) + 1):
        records = federation.play()
        recent = [*recent, federation.models.clone()][-last:]
        for own, record in zip(kept, records, strict=True):
            own["bytes_up"] += record["bytes_up"]
            own["local_loss"] = _short(record["local_loss"])
        late = round > config.rounds - last
        if not late and round % EVERY:
            continue
        models = {"last": federation.models} | ({"averaged": torch.stack(recent).mean(dim=0)} if late else {})
        for kind, weights in models.items():
            for i, scores in enumerate(federation.engine.scores(weights)):
                figures, clients = evaluate(federation.runs[i], scores, dataset)
                if late:
                    seen[i][kind].append(figures)
                    kept[i][f"clients_{kind}"] = clients
                if kind == "last" and round % EVERY == 0:
                    kept[i]["rounds"][str(round)] = [_short(figures[name]) for name in MEASURES[:2]]
    by_seed: dict[int, dict[str, dict[str, Any]]] = {seed: {} for seed in config.seeds}
    for run, own, evaluated in zip(federation.runs, kept, seen, strict=True):
        own["gini"] = _short(metrics.gini(run.store.times_selected))
        for kind, found in evaluated.items():  # after the last round, and the mean over the last ones
            own[kind] = {
                name: [_short(found[-1][name]), _short(np.mean([one[name] for one in found]))]
                for name in MEASURES
                if found
            }
        by_seed[run.seed][run.name] = own
    return by_seed


def evaluate(run: Run, scores: NDArray[Any], dataset: Dataset) -> tuple[dict[str, float], list[float]]:
    """The measures in points, and each client's accuracy, from the score of a model on every test example."""
    labels, tests, classes = dataset.y_test, run.environment.partition.test, int(dataset.classes or 0)
    by_client = 100 * np.array([scores[test].mean(dtype=np.float64) for test in tests])
    by_class = 100 * np.bincount(labels, scores, classes) / np.bincount(labels, minlength=classes)
    expected = metrics.expected_values([np.bincount(labels[test], minlength=classes) for test in tests], by_class)
    found = {
        "accuracy": 100 * float(scores[np.concatenate(tests)].mean(dtype=np.float64)),
        "dissimilarity": metrics.dissimilarity(by_client),
        "expected_dissimilarity": metrics.dissimilarity(expected),
        "worst10": metrics.worst(by_client),
    }
    return found, [round(value, 1) for value in by_client.tolist()]


def _short(value: Any) -> float:
    return round(float(value), 4)


@dataclass(frozen=True)
class Part:
    """Some seeds of a group, of some or all of its selectors: what is played together."""

    data: str
    group: str
    seeds: Sequence[int]
    selectors: Sequence[str] = ()


def play_missing(part: Part, work: Path, data_dir: Path | None = None, device: str = "cpu") -> list[str]:
    """Play what is neither committed nor in `work`, and keep it there; the selectors that were played."""
    group, committed, there = groups(part.data)[part.group], Evidence.read(part.data).runs.get(part.group, {}), {}
    for seed in part.seeds:
        path = _path(work, part, seed)
        there[seed] = json.loads(path.read_text())["runs"] if path.exists() else {}
    wanted = {
        name: group[name]
        for name in part.selectors or group
        if name in group and not all(name in there[seed] or seed in committed.get(name, {}) for seed in part.seeds)
    }
    if wanted:
        config = configuration(part.data, part.group, wanted, part.seeds)
        for seed, runs in play(config, _load(part.data, data_dir), device=device).items():
            path = _path(work, part, seed)
            if _read(part.group)[0] != "paper":
                for run in runs.values():
                    del run["clients_last"], run["clients_averaged"]  # figures are enough
            half = path.with_suffix(".tmp")
            half.write_text(json.dumps({"group": part.group, "seed": seed, "runs": there[seed] | runs}))
            half.replace(path)
    return list(wanted)


def _path(work: Path, part: Part, seed: int) -> Path:
    """Where the runs of a group and a seed are until they are collected."""
    return work / f"{part.data}-{seed}-{part.group.replace(': ', '-')}.json"


@cache
def _load(data: str, data_dir: Path | None) -> Dataset:
    return load_data(configuration(data, "mean", {"uniform": {}}, [0]), data_dir)


@dataclass
class Evidence:
    """One data set's runs: by group, selector and seed."""

    path: Path
    made_with: list[dict[str, Any]]  # each time runs were added: versions, commit, machine, groups
    runs: dict[str, dict[str, dict[int, dict[str, Any]]]]

    @classmethod
    def read(cls, data: str, folder: Path = FOLDER) -> Evidence:
        """What is committed; nothing if there is no file."""
        path = folder / f"{data}.json"
        content = json.loads(path.read_text()) if path.exists() else {"made_with": [], "runs": {}}
        runs = {
            group: {name: {int(seed): run for seed, run in by.items()} for name, by in of.items()}
            for group, of in content["runs"].items()
        }
        return cls(path, content["made_with"], runs)

    def add(self, group: str, seed: int, runs: Mapping[str, Any]) -> None:
        """The runs of a group with one seed."""
        for name, run in runs.items():
            self.runs.setdefault(group, {}).setdefault(name, {})[seed] = run

    def write(self) -> None:
        """A line a selector of a group."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for group in (name for name in groups(self.path.stem) if name in self.runs):
            of = self.runs[group]
            rows = [f"{json.dumps(name)}:{json.dumps(by, separators=(',', ':'))}" for name, by in of.items()]
            lines.append(f"{json.dumps(group)}:{{\n" + ",\n".join(rows) + "\n}")
        head = '{"made_with":[\n' + ",\n".join(map(json.dumps, self.made_with)) + '],\n"runs":{\n'
        self.path.write_text(head + ",\n".join(lines) + "\n}}\n")


def collect(data: str, work: Path, device: str = "cpu") -> None:
    """Add what `work` holds to the committed runs."""
    evidence, found = Evidence.read(data), [json.loads(path.read_text()) for path in work.glob(f"{data}-*.json")]
    for content in sorted(found, key=lambda content: content["seed"]):
        evidence.add(content["group"], content["seed"], content["runs"])
    if found:
        added = {"groups": sorted({content["group"] for content in found})}
        evidence.made_with.append(made_with(device, "compiled" if device == "cpu" else "torch") | added)
        evidence.write()


def main() -> None:
    """Play what is missing, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--data", choices=DATA, action="append")
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0 to N-1")
    parser.add_argument("--group", action="append", default=[], help="default: all")
    parser.add_argument("--selector", action="append", default=[], help="default: all")
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--at-once", type=int, default=1, help="seeds that are played together")
    parser.add_argument("--processes", type=int, default=1, help="parts that are played at the same time")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    chosen = given.data or DATA
    parts = [
        Part(data, group, range(first, min(first + given.at_once, given.seeds)), given.selector)
        for first in range(0, given.seeds, given.at_once)
        for data in chosen
        for group in groups(data)
        if group in (given.group or [group])
    ]
    play_part = partial(play_missing, work=given.work, data_dir=given.data_dir, device=given.device)
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for part, played in zip(parts, pool.map(play_part, parts), strict=True):
            if played:
                print(part.data, part.group, *part.seeds, flush=True)
    for data in chosen:
        collect(data, given.work, given.device)


if __name__ == "__main__":
    main()
