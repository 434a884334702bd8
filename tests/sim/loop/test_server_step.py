import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from equifl.aggregators import Aggregator, BySelector, Memory, Momentum, QFedAvg
from equifl.experiment.config import Config
from equifl.experiment.run_folder import CHECKPOINT, SERVER_MEMORY, RunFolder
from equifl.selectors.base import weights_of
from equifl.sim.loop.federation import Federation
from equifl.sim.simulation import load_data, simulate
from tests.sim.test_simulation import TINY, Stop

RULES = {
    "memory": "memory",
    "memory by loss, float16": "{class='memory', q=1.0, keep='float16'}",
    "memory in a file": "{class='memory', q=1.0, keep='file'}",
    "momentum of a memory": "{class='momentum', beta=0.5, inner={class='memory', q=2.0}}",
    "q-FedAvg": "{class='q_fedavg', q=1.0}",
    "by selector": "selector",
}


def config(rule: str, *others: str) -> Config:
    return Config.load(None, [*TINY, f"server.aggregate={rule}", *others])


def federation(rule: str, *others: str) -> Federation:
    made = config(rule, *others)
    return Federation(made, load_data(made, None), device="cpu", engine="torch")


@pytest.mark.parametrize("rule", RULES)
def test_a_stopped_run_goes_on_to_the_same_bytes(rule: str, tmp_path: Path) -> None:
    given = config(RULES[rule], "server.average_last=2")
    simulate(given, out=tmp_path / "whole", device="cpu")
    for after in range(1, given.rounds + 1):
        simulate(given, out=tmp_path / "parts", device="cpu", callbacks=[Stop(after)])
        kept = after < given.rounds or "file" not in RULES[rule]  # what is in two files is not kept at the end
        assert (tmp_path / "parts" / CHECKPOINT).exists() == kept
    whole, parts = ((tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    left = {path.name for path in (tmp_path / "parts").iterdir()}
    assert left <= {"config.json", "rounds.jsonl", ".lock", CHECKPOINT}


KILLED = """
import os, signal, sys
from equifl.experiment.run_folder import RunFolder
from equifl.sim import players
from equifl.sim.loop.federation import Federation
from equifl.sim.simulation import simulate
from tests.sim.loop.test_server_step import LONG, config

players.CHECKPOINT_SECONDS = -1.0  # a checkpoint each round
out, moment, kept = sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3].split(",")]
saved, played = [0], [0]
save, play = RunFolder.save_checkpoint, Federation.play

def saving(self, arrays):
    saved[0] += 1
    if saved[0] == 5 and moment == "before a checkpoint":
        os.kill(os.getpid(), signal.SIGKILL)
    if saved[0] not in kept:
        raise OSError(28, "No space left on device")
    save(self, arrays)
    if saved[0] == 5 and moment == "after a checkpoint":
        os.kill(os.getpid(), signal.SIGKILL)

def playing(self):
    records = play(self)
    played[0] += 1
    if played[0] == 6 and moment == "after a round":
        os.kill(os.getpid(), signal.SIGKILL)
    return records

RunFolder.save_checkpoint, Federation.play = saving, playing
simulate(config(*LONG), out=out, device="cpu")
"""

LONG = "{class='memory', q=1.0, keep='file'}", "rounds=8", "per_round=6"  # most clients reply more than once


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "kept"),
    [
        ("before a checkpoint", "2"),
        ("after a checkpoint", "1,5"),
        ("after a round", "1,3"),
        ("after a round", "1,2,3,4,5"),
    ],
)
def test_killed_with_its_memory_in_a_file_it_goes_on_to_the_same_bytes(moment: str, kept: str, tmp_path: Path) -> None:
    """Rows that were written since the checkpoint, also twice, must not be taken for those of the checkpoint.

    Of the checkpoints, one a round, only some are `kept`; the disk refuses the others.
    """
    given = config(*LONG)
    simulate(given, out=tmp_path / "whole", device="cpu")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), moment, kept]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == -signal.SIGKILL, found.stderr
    assert (tmp_path / "killed" / CHECKPOINT).exists()
    assert (tmp_path / "killed" / SERVER_MEMORY).exists()
    simulate(given, out=tmp_path / "killed", device="cpu")
    whole, killed = ((tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "killed"))
    assert whole == killed
    assert not (tmp_path / "killed" / SERVER_MEMORY).exists()


@pytest.mark.parametrize("damage", ["missing", "changed", "of another shape"])
def test_a_memory_file_that_is_not_the_checkpoints_is_refused(damage: str, tmp_path: Path) -> None:
    given = config("{class='memory', keep='file'}")
    simulate(given, out=tmp_path / "run", device="cpu", callbacks=[Stop(1)])
    file = tmp_path / "run" / SERVER_MEMORY
    if damage == "missing":
        file.unlink()
    else:
        rows = np.load(file)
        rows[rows != 0] += 1
        np.save(file, rows if damage == "changed" else rows[:, :, 1:])
    with pytest.raises(ValueError, match=rf"{CHECKPOINT}: cannot be used .*; put this run's own back, or delete it"):
        simulate(given, out=tmp_path / "run", device="cpu")
    (tmp_path / "run" / CHECKPOINT).unlink()
    assert simulate(given, out=tmp_path / "run", device="cpu").finished  # all rounds are played again


def test_a_checkpoint_without_the_rows_of_a_file_is_small(tmp_path: Path) -> None:
    sizes = {}
    for keep in ("whole", "float16", "file"):
        given = config(f"{{class='memory', keep='{keep}'}}")
        simulate(given, out=tmp_path / keep, device="cpu", callbacks=[Stop(1)])
        sizes[keep] = (tmp_path / keep / CHECKPOINT).stat().st_size
    runs, n, d = len(given.selectors) * len(given.seeds), given.clients, federation("mean").model.parameters
    assert n is not None
    rows = runs * n * d
    assert sizes["whole"] - sizes["file"] == pytest.approx(4 * rows, rel=0.1)
    assert sizes["float16"] - sizes["file"] == pytest.approx(2 * rows, rel=0.1)


def test_a_rule_is_given_the_population_the_rate_and_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    step = BySelector.step

    def watched(self: BySelector, replies: Any, memory: Any) -> Any:
        seen.append(replies)
        return step(self, replies, memory)

    monkeypatch.setattr(BySelector, "step", watched)
    made = federation("selector", "selectors={divfl={}}", "introduce=true", "rounds=3")
    for round in range(3):
        run = made.runs[0]
        signals = run.store.signals(round, distances=made.memory.distances.get(0))
        made.play()
        assert seen[-1].population == len(run.store)
        assert seen[-1].lr == made.local.lr
        if round:
            expected = weights_of(run.selector, signals, run.cohorts[-1], "divfl")
            np.testing.assert_allclose(seen[-1].weights, expected)
    assert len(set(seen[-1].weights.tolist())) > 1


def test_the_share_of_those_who_drop_out_goes_to_the_others() -> None:
    made = federation("selector", "selectors={divfl={}}", "seeds=[0]", "availability.dropout=0.5", "rounds=8")
    given: list[Any] = []
    rule = made.server.rule

    class Watching:
        needs = ("weights",)

        def step(self, replies: Any, memory: Any) -> Any:
            given.append(replies)
            return rule.step(replies, memory)

    made.server.rule = Watching()
    for _ in range(8):
        made.play()
    assert any(len(replies.clients) < made.config.cohort_size(0) for replies in given)
    for replies in given:
        assert float(replies.weights.sum()) == pytest.approx(len(made.runs[0].store))


def test_selectors_without_weights_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    federation("selector", "selectors={uniform={}, divfl={}, rota={}}", "rounds=2").play()
    assert caplog.text.count("no weights") == 1
    assert "server.aggregate: Random and Rota: no weights; the replies of a cohort count the same there" in caplog.text
    caplog.clear()
    federation("mean", "selectors={uniform={}}")
    assert not caplog.text


def test_a_rule_says_its_bytes_before_the_run_starts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    federation("memory", "clients=400", "train.model=mlp", "data.partition=iid")
    assert "server.aggregate: the rule keeps" in caplog.text
    assert "in memory, and in each checkpoint" in caplog.text
    caplog.clear()
    federation("{class='memory', keep='file'}")
    assert "in a file" in caplog.text


def test_rules_as_objects_and_averaging_compose() -> None:
    tables = {}
    rules: dict[str, Aggregator] = {"memory": Memory(q=1.0), "momentum": Momentum(beta=0.5), "q": QFedAvg()}
    for name, rule in rules.items():
        for last in (1, 3):
            results = simulate(
                config("mean"), device="cpu", aggregate=rule, server={"average_last": last}, seeds=1, rounds=4
            )
            assert results.finished
            tables[name, last] = results.records[-1]["accuracy"], results.records[-1]["global_loss"]
    assert len(set(tables.values())) == len(tables)


def test_memory_in_a_file_and_in_memory_are_the_same_run() -> None:
    found = [
        simulate(config(f"{{class='memory', q=1.0, keep='{keep}'}}"), device="cpu").records
        for keep in ("whole", "file")
    ]
    for one, other in zip(*found, strict=True):
        assert one["cohort"] == other["cohort"]
        if "global_loss" in one:
            assert one["global_loss"] == pytest.approx(other["global_loss"], rel=1e-4)


def test_a_disk_that_refuses_a_checkpoint_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equifl.sim.players.CHECKPOINT_SECONDS", -1.0)
    given = config("{class='memory', keep='file'}", "rounds=5")
    save, calls = RunFolder.save_checkpoint, []

    def refusing(self: RunFolder, arrays: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        save(self, arrays)

    monkeypatch.setattr(RunFolder, "save_checkpoint", refusing)
    simulate(given, out=tmp_path / "full", device="cpu")
    monkeypatch.undo()
    simulate(given, out=tmp_path / "whole", device="cpu")
    whole, full = ((tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "full"))
    assert whole == full


def test_steps_are_on_the_device_of_the_updates() -> None:
    made = federation("{class='memory', keep='file'}")
    made.play()
    assert isinstance(made.models, torch.Tensor)
    assert torch.isfinite(made.models).all()
