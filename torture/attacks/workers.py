"""Ray workers and nodes killed by SIGKILL at any moment: selections and runs end as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from equifl.experiment.config import Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim.simulation import simulate
from torture.ray_nodes import Nodes, family

NEEDS = "ray"
QUICK = 1
SELECTIONS = 15
SETTINGS = ["rounds=120", "clients=12", "per_round=3", "seeds=[0,1,2]", "train.steps=2", "train.model=logistic"]
SETTINGS += ["data.name=synthetic", "data.partition=natural", "evaluate_every=4", "selectors={uniform={}, rota={}}"]
PROGRAMS = {
    "runs": """
from equifl.cluster import sweep
sweep.CHECKPOINT_SECONDS = 0.5
from equifl.cli.main import main
main()
""",
    "selections": f"""
import sys
from equifl import DivFL, Rota, SubTrunc
from equifl.cluster import ClusterSelector
from equifl.testing import random_signals
signals = random_signals(800, d=16, seed=int(sys.argv[2]))
def choices(say):
    for i in range({SELECTIONS}):
        selector = (DivFL(sample=8), Rota(), SubTrunc(sample=5), DivFL(scale="relative"))[i % 4]
        found = ClusterSelector(selector, sys.argv[1], shards=3).select(signals, 20, rng=i).tolist()
        if say:
            print("chosen", flush=True)
        yield found
undisturbed = list(choices(False))
print("chosen", flush=True)
assert list(choices(True)) == undisturbed, "another choice"
""",
}


def make(rng: np.random.Generator) -> list[Any]:
    jobs = ["selections", "runs"] if rng.random() < 0.5 else ["runs", "selections"]
    return [
        {
            "job": job,
            "seed": int(rng.integers(1000)),
            "kills": [
                {
                    "what": "node" if rng.random() < 0.3 else "worker",
                    "which": int(rng.integers(100)),
                    "at": float(rng.choice([0.0, rng.random(), rng.random()])),  # of the whole work
                    "and": float(rng.exponential(0.2)),
                }
                for _ in range(int(rng.integers(1, 4)))
            ],
        }
        for job in jobs
    ]


def play(steps: list[Any], folder: Path) -> Counter[str]:
    counts = Counter[str]()
    with Nodes(1, 1, 1) as nodes:
        for number, step in enumerate(steps):
            run, out = folder / f"{number}", folder / f"{number}.out"
            arguments = [nodes.address, str(step["seed"])]
            if step["job"] == "runs":
                words = [word for setting in SETTINGS for word in ("--set", setting)]
                arguments = ["run", *words, "--out", str(run), "--ray", nodes.address, "--quiet"]
            with out.open("w") as file:
                command = [sys.executable, "-c", PROGRAMS[step["job"]], *arguments]
                process = subprocess.Popen(command, env=nodes.environment, stdout=file, stderr=subprocess.STDOUT)
            try:
                counts += _disturb(process, step, nodes, partial(_progress, run, out))
                code = process.wait(240)
            finally:
                process.kill()
                process.wait()
            assert code == 0, out.read_text()[-2000:]
            if step["job"] == "runs":
                _compare(run)
            counts[step["job"]] += SELECTIONS if step["job"] == "selections" else 1
    return counts


def _disturb(
    process: subprocess.Popen[bytes], step: dict[str, Any], nodes: Nodes, progress: Callable[[], float]
) -> Counter[str]:
    """Kill what the step names when so much of the work is done; a node that was killed is replaced at the end."""
    counts, left = Counter[str](), [i for i, node in enumerate(nodes.pids) if i and node]
    for kill in sorted(step["kills"], key=lambda kill: float(kill["at"])):
        end = time.monotonic() + 240
        while process.poll() is None and not (progress() >= kill["at"] and _workers(nodes)):
            assert time.monotonic() < end, "nothing happened for four minutes"
            time.sleep(0.01)
        time.sleep(kill["and"])
        victims = _workers(nodes)
        if kill["what"] == "node" and left:
            nodes.remove(left.pop(kill["which"] % len(left)))
            counts["nodes killed"] += 1
        elif victims:
            with suppress(ProcessLookupError):
                os.kill(victims[kill["which"] % len(victims)], signal.SIGKILL)
                counts["workers killed"] += 1
    for _ in range(counts["nodes killed"]):
        nodes.add(1)
    return counts


def _workers(nodes: Nodes) -> list[int]:
    """The processes of workers that have been given work, on all nodes."""
    found = sorted(pid for node in nodes.pids for root in node.get("raylet", []) for pid in family(root))
    return [pid for pid in found if _named(pid).startswith((b"ray::Shard", b"ray::Worker"))]


def _named(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _progress(run: Path, out: Path) -> float:
    """How much of the work is done, from 0 to 1; selections are made once before, to compare with."""
    rounds = run / "rounds.jsonl"
    if rounds.exists():
        return rounds.read_bytes().count(b"\n") / len(_undisturbed())
    said = out.read_text().count("chosen\n")
    return (said - 1) / SELECTIONS if said else 0.0


def _compare(run: Path) -> None:
    """The last bits may depend on which runs are computed together."""
    found = RunFolder(run).rows()
    assert len(found) == len(_undisturbed()), "records are missing"
    for row, other in zip(found, _undisturbed(), strict=True):
        assert [row[key] for key in ("round", "selector", "seed", "cohort")] == [
            other[key] for key in ("round", "selector", "seed", "cohort")
        ], "other records than those of a run left alone"
        assert abs(row["local_loss"] - other["local_loss"]) <= 1e-4 * abs(other["local_loss"]), "another loss"


@cache
def _undisturbed() -> list[dict[str, Any]]:
    """The records of a run that nothing stopped, in one process."""
    return simulate(Config.load(None, SETTINGS), device="cpu").records
