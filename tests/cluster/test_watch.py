"""Clusters that lose their parts, one killed after the other."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim.simulation import simulate
from tests.cluster.conftest import driver
from tests.cluster.driver import expected
from tests.cluster.test_sweep import OVERRIDES, assert_same_record
from torture.ray_nodes import Nodes, family, free_port

SETTINGS = [*OVERRIDES, "rounds=200", "selectors={uniform={}, rota={}}"]
# Checkpoints often, so that runs go on where they were; the head is missed soon.
COMMAND = "from equifl.cluster import sweep, watch; sweep.CHECKPOINT_SECONDS, watch.HEAD_SECONDS = 0.5, 2.0; "
COMMAND += "from equifl.cli.main import main; main()"
PIPE = subprocess.PIPE


@cache
def alone() -> list[dict[str, Any]]:
    return simulate(Config.load(None, SETTINGS), device="cpu").records


def run(folder: Path, address: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """`equifl run --ray`, begun."""
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "run",
        *words,
        "--out",
        str(folder),
        "--ray",
        *([address] * bool(address)),
    ]
    return subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)


def until(true: Callable[[], bool], process: subprocess.Popen[str] | None = None, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def rounds_in(folder: Path) -> int:
    file = folder / "rounds.jsonl"
    return file.read_bytes().count(b"\n") // 6 if file.exists() else 0


def assert_one_sentence(process: subprocess.Popen[str], folder: Path, *words: str) -> None:
    """And how to go on, and the exit code of a refusal."""
    out, errors = process.communicate(timeout=120)
    sentence, again = [line for line in errors.splitlines() if line.startswith(("equifl: ", "to go on: "))]
    assert process.returncode == 2, errors
    for word in ("equifl: ray: the ", *words, "is gone", f" of 200 rounds are in {folder / 'rounds.jsonl'}"):
        assert word in sentence
    assert again.startswith("to go on: equifl run ")
    assert errors.splitlines()[-2:] == [sentence, again]
    assert "Traceback" not in out + errors
    assert "(raylet)" not in out + errors, "Ray says the same in fifty lines"


def test_a_run_goes_on_after_its_head_and_then_its_node_died(tmp_path: Path) -> None:
    """First with a new head at the same address, by the same command; then without a cluster."""
    folder, port = tmp_path / "run", free_port()
    with Nodes(2, port=port) as nodes:
        process = run(folder, nodes.address, nodes.environment)
        until(lambda: rounds_in(folder) > 20, process)
        nodes.kill(0, "gcs_server")
        assert_one_sentence(process, folder, f"head of the cluster ({nodes.address})", "for 2 s")
    begun = rounds_in(folder)
    assert 20 < begun < 200
    RunFolder(folder).rows()  # are whole
    with Nodes(2, port=port) as nodes:
        process = run(folder, nodes.address, nodes.environment)
        until(lambda: rounds_in(folder) > begun, process)
        nodes.kill(0, "raylet")
        assert_one_sentence(process, folder, "node of this process (127.0.0.1:")
    assert begun < rounds_in(folder) < 200
    simulate(Config.load(None, SETTINGS), out=folder, device="cpu")
    assert_same_record(RunFolder(folder).rows(), alone())


def test_a_run_on_three_nodes_ends_with_the_same_records_on_two(tmp_path: Path) -> None:
    """There are fewer CPUs than workers then: who takes over shares one."""
    with Nodes(1, 1, 1) as nodes:
        process = run(tmp_path / "run", nodes.address, nodes.environment)
        until(lambda: rounds_in(tmp_path / "run") > 20, process)
        nodes.remove(1)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert "another takes over" in errors
    assert_same_record(RunFolder(tmp_path / "run").rows(), alone())


def test_a_selection_without_a_node_of_its_workers_is_the_same() -> None:
    """The head has no CPU; so the workers are on other nodes."""
    with Nodes(0, 1, 1) as nodes, driver("interrupted", nodes) as (said, answer):
        raylets = [node["raylet"][0] for node in nodes.pids]
        nodes.remove(raylets.index(min(said())))
        answer()
        assert said() == expected()


def test_a_selection_goes_on_without_the_head_and_not_without_the_node_of_its_process() -> None:
    with Nodes(1) as nodes, driver("interrupted", nodes) as (said, answer):
        said()
        nodes.kill(0, "gcs_server")
        answer()
        assert said() == expected()
        said()
        nodes.kill(0, "raylet")
        answer()
        assert re.match("ray: the (node of this process|head of the cluster) .* is gone", said())
        assert said() is False, "it is still in the cluster"


@pytest.mark.parametrize("joins", [False, True])
def test_a_killed_process_leaves_nothing_running(tmp_path: Path, joins: bool) -> None:
    with Nodes(2) as nodes:
        process = run(tmp_path / "run", nodes.address if joins else "", nodes.environment)
        until(lambda: rounds_in(tmp_path / "run") > 5, process)
        ours = family(process.pid) | {pid for pid in family(nodes.pids[0]["raylet"][0]) if is_worker(pid)}
        assert sum(map(is_worker, ours)) >= 2, "the workers are not found"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: not any(family(pid) for pid in ours), seconds=30)


def is_worker(pid: int) -> bool:
    try:
        return b"ray::Worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
