"""NVFlare's simulator: real messages between a server and sites, each a process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nvflare.pretend_server import rows

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def simulated(workspace: Path, **options: Any) -> str:
    """Play a job in a process of its own; returns its log."""
    command = [sys.executable, "-m", "tests.nvflare.job", str(workspace), json.dumps(options)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    log = run.stdout + run.stderr
    assert run.returncode == 0, log[-5000:]
    return log


def test_bad_and_silent_sites_do_not_stop_a_run_that_is_resumed_later(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options: dict[str, Any] = {
        "sites": 4,
        "num_clients": 4,
        "folder": str(folder),
        "selector": {"class": "subtrunc", "lam": 0.9},
    }
    bad = f"--nan site-1 --diff site-2 --silent site-3 --until {folder / 'rounds.jsonl'}"
    log = simulated(tmp_path / "first", num_rounds=1, min_responses=3, timeout=120, train_args=bad, **options)
    assert "round 0: a result of site-1 is set aside: its weights are not finite" in log
    assert "round 0: no result of site-3 (silent, late or failed)" in log
    (first,) = rows(folder)
    assert sorted(first["cohort"]) == [0, 1, 2, 3]
    assert first["set_aside"] == [0]
    assert first["local_loss"] > 0
    assert len([one for one in first["client_accuracy"] if one is not None]) == 2
    with np.load(tmp_path / "first" / "numbers" / "server" / "simulate_job" / "global_model.npz") as model:
        assert np.isfinite(model["w"]).all()
        assert model["w"].any()
    # With a time limit alone, which ends the round while site-3 is silent; and a script that fails.
    worse = f"{bad} --fails site-4"
    again = simulated(tmp_path / "second", num_rounds=2, timeout=10, resume=True, train_args=worse, **options)
    assert "goes on after round 0" in again
    assert re.search(r"round 1: no result of .*site-3.* \(silent, late or failed\)", again)
    assert re.search(r"round 1: no result of .*site-4.* \(silent, late or failed\)", again)
    assert [row["round"] for row in rows(folder)] == [0, 1]
