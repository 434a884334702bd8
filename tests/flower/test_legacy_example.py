"""examples/flower-legacy: the older API in Flower's simulation, and on a SuperLink with keys."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.certificates import make_key
from tests.flower.deployment import Deployment
from tests.flower.pretend_grid import rows
from tests.flower.processes import until

ROOT = Path(__file__).parents[2]


@pytest.mark.ray
def test_it_runs_and_is_resumed_in_flower_s_simulation(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for more in (["3"], ["5", "resume"]):
        run = subprocess.run(
            [sys.executable, "-m", "tests.flower.simulate_legacy", str(folder), *more],
            cwd=ROOT,
            env=os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-4000:]
        assert "participation-gini" in run.stderr + run.stdout
    played = rows(folder)
    assert [len(set(row["cohort"])) for row in played] == [3] * 5
    assert played[-1]["participation"]["never"] == 0
    assert len(played[-1]["client_accuracy"]) == 8, "whose nodes have other ids since it was resumed"


@pytest.mark.deployment
def test_it_runs_on_a_superlink(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    try:
        deployment.wait()
        shutil.copytree(ROOT / "examples" / "flower-legacy", tmp_path / "legacy")
        names = ["node0", "node1", "node2"]
        for partition, name in enumerate(names):
            make_key(tmp_path, name)
            deployment.register(name)
            deployment.start_node(name, partition)
        until(lambda: all(deployment.times_admitted(name) for name in names), "that all nodes are online", 180)
        folder = tmp_path / "run"
        deployment.start_run("legacy", folder=str(folder), k=2, rounds=2)
        finished = folder / "rounds.jsonl"
        until(
            lambda: finished.exists() and len(finished.read_text().splitlines()) == 2,
            "that two rounds are played",
            240,
        )
    finally:
        deployment.processes.end()
    played = rows(folder)
    assert {client for row in played for client in row["cohort"]} == {0, 1, 2}
    assert all(one is not None for one in played[-1]["client_accuracy"])
