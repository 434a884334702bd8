"""Sweeps on workers give the record of a sweep in one process, whoever dies."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import ray
from click.testing import CliRunner
from ray.exceptions import RayActorError

from equifl.cli.main import main
from equifl.cluster import sweep
from equifl.cluster.run_worker import Worker
from equifl.cluster.session import resource, taken
from equifl.cluster.sweep import Group, Sweep
from equifl.cluster.workers import WorkerDiedError
from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.results import Records
from equifl.experiment.run_folder import RunFolder
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.parts import runs_of
from equifl.sim.players import LocalPlayer
from equifl.sim.simulation import load_data, simulate
from tests.cluster.conftest import every_cpu_taken

OVERRIDES = ["rounds=12", "clients=12", "per_round=3", "seeds=[0,1,5]", "evaluate_every=4", "train.steps=2"]
OVERRIDES += ["train.model=logistic", "data.name=synthetic", "data.partition=natural"]
CONFIG = Config.load(overrides=OVERRIDES)
DATA = load_data(CONFIG, None)


class Every(Callback):
    """Does something after every round."""

    def __init__(self, act: Callable[[int], bool | None]) -> None:
        self._act = act

    def on_round(self, played: int, records: Records) -> bool | None:
        return self._act(played)


def play(folder: Path, player: Any = LocalPlayer, stop_after: int = 10**6) -> Records:
    stop = Every(lambda played: played < stop_after)
    simulate(CONFIG, dataset=DATA, out=folder, device="cpu", player=player, callbacks=[stop])
    return RunFolder(folder).rows()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The record of the run in one process."""
    return play(tmp_path_factory.mktemp("alone") / "run")


ON_WORKERS = partial(Sweep, address=None)


def assert_same_record(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """To the last bits, which may depend on the runs that are played together."""
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row.keys() == other.keys()
        assert [row[key] for key in ("round", "selector", "seed", "cohort")] == [
            other[key] for key in ("round", "selector", "seed", "cohort")
        ]
        assert row["local_loss"] == pytest.approx(other["local_loss"], rel=1e-4)


def test_the_record_is_that_of_one_process(tmp_path: Path, alone: list[dict[str, Any]]) -> None:
    words = [word for override in OVERRIDES for word in ("--set", override)]
    result = CliRunner().invoke(main, ["run", *words, "--out", str(tmp_path / "run"), "--ray", "--quiet"])
    assert result.exit_code == 0, result.stderr
    assert_same_record(RunFolder(tmp_path / "run").rows(), alone)
    kept = RunFolder(tmp_path / "run").load_checkpoint()
    assert kept is not None, "what a run that grows by rounds goes on from"
    assert kept["rounds_played"] == 12
    rounds = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    play(tmp_path / "run", ON_WORKERS)  # it has nothing left to play
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == rounds


def test_goes_on_where_a_run_in_one_process_stopped_and_the_other_way_round(
    tmp_path: Path, alone: list[dict[str, Any]]
) -> None:
    play(tmp_path / "run", stop_after=2)
    begun = play(tmp_path / "run", ON_WORKERS, stop_after=3)
    assert 0 < len(begun) < len(alone)
    checkpoint = RunFolder(tmp_path / "run").load_checkpoint()
    assert checkpoint is not None
    assert checkpoint["rounds_played"] * len(runs_of(CONFIG)) == len(begun)
    assert_same_record(play(tmp_path / "run"), alone)


def test_a_folder_grows_on_workers(tmp_path: Path, alone: list[dict[str, Any]]) -> None:
    less = replace(CONFIG, seeds=CONFIG.seeds[1:], rounds=6)
    simulate(less, dataset=DATA, out=tmp_path / "run", device="cpu", player=ON_WORKERS)
    assert_same_record(play(tmp_path / "run", ON_WORKERS), alone)


def ask_until_dead(worker: Any) -> None:
    """A worker may answer until the kill has reached it."""
    while True:
        ray.get(worker.__ray_ready__.remote())


def test_a_worker_that_dies_costs_its_work_since_the_last_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[dict[str, Any]]
) -> None:
    """The first to die leaves no checkpoint, the second one of every round. No round is asked for ahead."""
    monkeypatch.setattr(sweep, "_AHEAD", 1)
    monkeypatch.setattr(sweep, "CHECKPOINT_SECONDS", math.inf)
    player, begun_again = Sweep(CONFIG, DATA, device="auto", address=None), []
    assert len(player.groups) == min(len(runs_of(CONFIG)), resource("CPU"))
    resume, survivors = Group.resume, [group.worker for group in player.groups[1:]]

    def remembering(self: Group, checkpoint: Any, rows: Any) -> None:
        begun_again.append((self, int(checkpoint["rounds_played"])))
        resume(self, checkpoint, rows)

    def kill_one(played: int) -> None:
        if played in (2, 6):
            dying = player.groups[0].worker
            ray.kill(dying)
            with pytest.raises(RayActorError):
                ask_until_dead(dying)
            monkeypatch.setattr(sweep, "CHECKPOINT_SECONDS", -1.0)

    monkeypatch.setattr(Group, "resume", remembering)
    results = simulate(
        CONFIG, dataset=DATA, out=tmp_path / "run", player=lambda *_, **__: player, callbacks=[Every(kill_one)]
    )
    assert results.finished
    assert_same_record(RunFolder(tmp_path / "run").rows(), alone)
    assert [group.worker for group in player.groups[1:]] == survivors
    assert begun_again == [(player.groups[0], 6)]


def test_workers_that_die_while_rounds_are_asked_for_ahead_change_nothing(
    tmp_path: Path, alone: list[dict[str, Any]]
) -> None:
    player = Sweep(CONFIG, DATA, device="auto", address=None)

    def kill_all(played: int) -> None:
        if played in (1, 7):
            for group in player.groups:
                ray.kill(group.worker)

    made: Any = lambda *_, **__: player  # noqa: E731
    simulate(CONFIG, dataset=DATA, out=tmp_path / "run", player=made, callbacks=[Every(kill_all)])
    assert_same_record(RunFolder(tmp_path / "run").rows(), alone)


def test_a_worker_that_dies_while_it_prepares_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[dict[str, Any]]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    class Dying(Worker):
        """Each of the first two is killed as it prepares."""

        def prepare(
            self, config: Config, dataset: Dataset, device: str, engine: str, model: Any = None
        ) -> tuple[dict[str, Any], str]:
            for name in ("first", "second"):
                try:
                    (marks / name).touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
            return super().prepare(config, dataset, device, engine, model)

    monkeypatch.setattr(sweep, "Worker", Dying)
    assert_same_record(play(tmp_path / "run", ON_WORKERS), alone)
    assert {mark.name for mark in marks.iterdir()} == {"first", "second"}


def test_gives_up_if_worker_after_worker_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(calls: Any) -> Any:
        raise WorkerDiedError("it was killed")

    def start_worker(group: Group) -> None:
        group.worker, group.ready, group.started = MagicMock(), [], None

    monkeypatch.setattr(Group, "_start_worker", start_worker)
    monkeypatch.setattr(Group, "close", lambda group: None)
    monkeypatch.setattr(sweep, "results", dead)
    monkeypatch.setattr(sweep, "started", lambda *_, **__: True)
    group = Group(CONFIG, CONFIG, DATA, "cpu", "auto", groups=1, wait_limit=1.0)
    group.ask("play", False)
    with pytest.raises(OSError, match=r"ray: 5 workers in a row died over round 3 \(it was killed\)"):
        group.answer(None, 3)
    with pytest.raises(OSError, match=r"ray: 5 workers in a row died over round 0 \(it was killed\)"):
        Group(CONFIG, CONFIG, DATA, "cpu", "auto", groups=1, wait_limit=1.0).prepared()


def test_waits_for_cpus_and_gives_up_with_one_sentence(tmp_path: Path) -> None:
    words = [word for override in OVERRIDES for word in ("--set", override)]
    with every_cpu_taken():
        result = CliRunner().invoke(main, ["run", *words, "--out", str(tmp_path / "run"), "--ray", "--ray-wait", "1"])
    assert result.exit_code == 2
    every = resource("CPU")
    assert result.stderr.splitlines()[-1] == (
        f"equifl: ray: {every} of {every} workers cannot start: each needs a free CPU, and {every} of {every} CPUs "
        "are taken, after waiting for 1 s; free some, add nodes, or allow more time (wait_limit, on the command line "
        "--ray-wait)"
    )
    assert not (tmp_path / "run").exists()
    while taken("CPU") != f"0 of {every} CPUs are taken":
        time.sleep(0.1)  # ends only if nothing is left that would take CPUs


def test_what_is_wrong_with_a_run_is_said_as_without_workers(tmp_path: Path) -> None:
    options = [*OVERRIDES, "train.lr=1e39"]
    words = [word for override in options for word in ("--set", override)]
    result = CliRunner().invoke(main, ["run", *words, "--out", str(tmp_path / "run"), "--ray"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("equifl: round 0, ")
    assert "try a smaller train.lr" in result.stderr


def test_refuses_a_gpu_that_the_cluster_does_not_have() -> None:
    if resource("GPU"):
        pytest.skip("it has one")
    with pytest.raises(ValueError, match="device: 'cuda' is not allowed; allowed: auto or cpu, because the cluster"):
        Sweep(CONFIG, DATA, device="cuda", address=None)


def test_every_gpu_of_the_cluster_has_a_worker_and_its_successor(tmp_path: Path, alone: list[dict[str, Any]]) -> None:
    """Ray is told of two GPUs; who dies in round 3 leaves its own to the one who takes over."""
    command = [sys.executable, "-m", "tests.cluster.on_gpus", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, cwd=Path(__file__).parents[2])
    assert_same_record(RunFolder(tmp_path / "run").rows(), alone)
    first, second, successor = (tmp_path / "gpus").read_text().splitlines()
    assert {first, second} == {"cuda 0", "cuda 1"}
    assert successor in (first, second)
