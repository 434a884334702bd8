"""`equifl run` killed by SIGKILL at any moment, several times: resumed, it has the records of a run left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from equifl.experiment.config import Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim.simulation import simulate

QUICK = 1
SETTINGS = ["rounds=80", "clients=10", "per_round=2", "seeds=[0,1]", "train.steps=1", "train.model=logistic"]
SETTINGS += ["data.name=synthetic", "data.partition=natural", "evaluate_every=4", "selectors={uniform={}, rota={}}"]
# Checkpoints many times a second, so that a process is likely to be hit as it writes one.
OFTEN = "from equifl.sim import players; players.CHECKPOINT_SECONDS = {}; from equifl.cli.main import main; main()"


def make(rng: np.random.Generator) -> list[Any]:
    return [
        {
            "seconds between checkpoints": float(rng.choice([0.01, 0.01, 0.1, 20.0])),
            "kill at": float(rng.choice([0.0, rng.random(), rng.random(), rng.random()])),
            "and": float(rng.exponential(0.02)),
        }
        for _ in range(int(rng.integers(1, 4)))
    ]


def play(steps: list[Any], folder: Path) -> Counter[str]:
    expected, counts = _undisturbed(), Counter[str]()
    run, rounds = folder / "run", folder / "run" / "rounds.jsonl"
    for step in steps:
        size = rounds.stat().st_size if rounds.exists() else 0
        goal = size + int(step["kill at"] * (len(expected) - size))
        process = _start(run, step["seconds between checkpoints"])
        end = time.monotonic() + 120
        while process.poll() is None and not (run.exists() and _size(rounds) >= goal):
            assert time.monotonic() < end, "nothing happened for two minutes"
            time.sleep(0.001)
        time.sleep(step["and"])
        process.kill()
        _, errors = process.communicate()
        counts["kills"] += process.returncode == -9
        assert process.returncode in (0, -9), errors
        if (run / "config.json").exists():
            kept = rounds.read_bytes() if rounds.exists() else b""
            assert expected.startswith(kept), "other records than those of a run left alone"
            RunFolder(run).rows()
    process = _start(run, 20.0)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert rounds.read_bytes() == expected, "other records than those of a run left alone"
    left = {path.name for path in run.iterdir()} - {".lock", "checkpoint.npz"}  # of the last round, if it is small
    assert left == {"config.json", "rounds.jsonl", "report.html"}, left
    counts["resumed"] += 1
    return counts


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-c", OFTEN.format(seconds), "run", *words, "--out", str(folder), "--quiet"]
    here = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": here}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


@cache
def _undisturbed() -> bytes:
    """The records of a run that nothing stopped."""
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        simulate(Config.load(None, SETTINGS), out=Path(folder) / "run", device="cpu")
        return (Path(folder) / "run" / "rounds.jsonl").read_bytes()
