"""examples/nvflare, as its README says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvflare.pretend_server import rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
pytestmark = pytest.mark.slow


def test_it_runs_in_the_simulator(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environment = os.environ | {
        "PYTHONPATH": str(EXAMPLE.parents[1]),
        "NVFLARE_SIMULATOR_WORKSPACE_ROOT": str(tmp_path / "workspace"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "job.py", "--sites", "3", "--rounds", "2", "--folder", str(folder)]
    run = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-5000:]
    assert f"next: equifl report {folder}" in run.stdout
    records = rows(folder)
    assert [len(row["cohort"]) for row in records] == [2, 2]
    assert set(records[0]["cohort"] + records[1]["cohort"]) == {0, 1, 2}
    assert all(one is not None for one in records[-1]["client_accuracy"])
    assert records[-1]["accuracy"] > 30
    named = subprocess.run([sys.executable, "-m", "equifl", "table", str(folder)], capture_output=True, text=True)
    assert "Rota" in named.stdout, named.stderr
