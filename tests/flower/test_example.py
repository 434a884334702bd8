"""The example app runs by the command that its README gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from equifl.experiment.run_folder import RunFolder
from tests.conftest import free_port
from tests.flower.processes import Processes, listens, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A SuperLink for simulations, there where `flwr run` looks for one before it starts its own."""
    port = free_port()
    processes = Processes(tmp_path, FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=str(port))
    try:
        processes.start(
            *("superlink", "flower-superlink", "--insecure", "--simulation"),
            *("--host", "127.0.0.1", "--port", str(port)),
        )
        until(lambda: listens(port), "that the SuperLink listens", 60)
        yield processes
    finally:
        processes.end()


@pytest.mark.deployment
def test_the_example_runs_as_its_readme_says(processes: Processes, tmp_path: Path) -> None:
    command = re.search(r"^flwr run \. --stream .*", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    assert command
    shorter = f"rounds=2 probe='everyone' folder='{tmp_path / 'records'}'"
    processes.run("/bin/bash", "-c", f'{command[0]} --run-config "{shorter}"', cwd=EXAMPLE, seconds=90)

    rows = RunFolder(tmp_path / "records").rows()
    assert [row["round"] for row in rows] == [0, 1]
    for row in rows:
        assert len(set(row["cohort"])) == 3
        assert row["local_loss"] is not None
        assert len(row["client_accuracy"]) == 10
        assert None not in row["client_accuracy"]

    page = processes.run("equifl", "report", "records").strip()
    assert "rota" in (tmp_path / page).read_text()
