"""Running what is missing, and keeping what came out small: final figures and every tenth round of each run."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.results import Records
from equifl.paper.claims import Verdict, claims, judge, values_of
from equifl.paper.tables import configuration, rows

KEPT = ("accuracy", "dissimilarity", "std", "gap", "worst10", "best10", "jain", "local_loss", "global_loss")
PROCESSES = 4  # on a GPU, where selection would otherwise wait for one core


@dataclass
class PaperResults:
    """One data set's results in one JSON file: every finished run, by selector and seed."""

    path: Path
    runs: dict[str, dict[int, dict[str, Any]]]
    made_with: dict[str, Any]
    seconds: float

    @classmethod
    def read(cls, path: Path) -> PaperResults:
        """What is there already; nothing if there is no file."""
        if not path.exists():
            return cls(path, {}, {}, 0.0)
        content = json.loads(path.read_text())
        runs = {name: {int(seed): run for seed, run in by.items()} for name, by in content["runs"].items()}
        return cls(path, runs, content["made_with"], content["seconds"])

    def write(self) -> None:
        """Under a temporary name, then moved into place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"made_with": self.made_with, "seconds": round(self.seconds, 1), "runs": self.runs}
        part = self.path.with_suffix(".tmp")
        part.write_text(json.dumps(content, separators=(",", ":")).replace('"runs":', '\n"runs":') + "\n")
        part.replace(self.path)

    def missing(self, selectors: Iterable[str], seeds: Sequence[int]) -> dict[int, list[str]]:
        """Selectors not yet run, by seed."""
        left = {seed: [name for name in selectors if seed not in self.runs.get(name, {})] for seed in seeds}
        return {seed: names for seed, names in left.items() if names}

    def finals(self) -> dict[str, dict[int, dict[str, float]]]:
        """The last evaluated figures by selector and seed."""
        return {name: {seed: run["final"] for seed, run in by.items()} for name, by in self.runs.items()}

    def rows(self, selectors: Iterable[str], seeds: Iterable[int]) -> list[dict[str, Any]]:
        """The final figures as records, for a table."""
        return [
            {"selector": name, "seed": seed, "round": max(map(int, self.runs[name][seed]["rounds"])) - 1}
            | self.runs[name][seed]["final"]
            | {"participation": {"gini": self.runs[name][seed]["final"]["gini"]}}
            for name in selectors
            for seed in seeds
        ]

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Keep of a run's records what is worth keeping."""
        for row in records:
            if "accuracy" not in row:
                continue
            run = self.runs.setdefault(row["selector"], {}).setdefault(row["seed"], {"rounds": {}})
            figures = {name: _short(row[name]) for name in KEPT} | {"gini": _short(row["participation"]["gini"])}
            figures |= {name: row[name] for name in ("bytes_down", "bytes_up")}
            run["rounds"][str(row["round"] + 1)] = [
                figures[name] for name in ("accuracy", "dissimilarity", "local_loss")
            ]
            run["final"] = figures


def run_missing(
    results: PaperResults,
    selectors: Sequence[str],
    seeds: Sequence[int],
    *,
    data: str,
    variant: str = "paper",
    work: Path,
    device: str,
    data_dir: Path | None,
) -> None:
    """Run what is missing in as few programs as memory and cores allow, and add it to the results file."""
    started = time.monotonic()
    groups: dict[tuple[str, ...], list[int]] = {}
    for seed, names in results.missing(selectors, seeds).items():
        groups.setdefault(tuple(names), []).append(seed)
    jobs = []
    for together, wanted in groups.items():
        step = -(-len(wanted) // (PROCESSES if device == "cuda" else 1))
        for start in range(0, len(wanted), step):
            part = wanted[start : start + step]
            config = configuration(data, together, part, variant)
            digest = hashlib.sha256(json.dumps(config.as_dict()).encode()).hexdigest()
            jobs.append((config, work / f"{data}-{variant}-{digest[:12]}", device, data_dir))
    if not jobs:
        return
    with ProcessPoolExecutor(len(jobs) if device == "cuda" else 1, multiprocessing.get_context("spawn")) as pool:
        for records, made_with in pool.map(play, *zip(*jobs, strict=True)):
            results.add(records)
            results.made_with = dict(made_with)
    results.seconds += time.monotonic() - started
    results.write()
    for _, folder, _, _ in jobs:  # all that is worth keeping is in the results
        shutil.rmtree(folder)


def selectors_for(wanted: Iterable[str], data: str) -> list[str]:
    """The selectors that some tables take, each once."""
    return list(dict.fromkeys(row.selector for table in wanted for row in rows(table, data)))


def verdicts(
    wanted: Sequence[str], data: str, finals: Mapping[str, Mapping[int, Mapping[str, float]]], seeds: Sequence[int]
) -> list[Verdict]:
    """The paper's claims about these tables, judged."""
    return [judge(claim, values_of(finals, seeds)) for claim in claims(data) if claim.table in wanted]


def play(config: Config, folder: Path, device: str, data_dir: Path | None) -> tuple[Records, Mapping[str, Any]]:
    """One program: a run folder from start, or from where it was, to end."""
    from equifl.sim.simulation import simulate

    class Progress(Callback):
        """A line now and then on standard error: several processes may be running."""

        last = time.monotonic()

        def on_round(self, played: int, records: Records) -> None:
            if time.monotonic() - self.last > 10:
                self.last = time.monotonic()
                print(f"{folder.name}: round {played}/{config.rounds}", file=sys.stderr, flush=True)

    results = simulate(config, out=folder, device=device, data_dir=data_dir, callbacks=[Progress()], progress=False)
    return results.records, results.made_with


def _short(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)
