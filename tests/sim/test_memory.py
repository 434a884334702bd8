import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from equifl.experiment.config import Config
from equifl.sim import memory
from equifl.sim.simulation import simulate

SYNTHETIC = 'data={name="synthetic", largest=20, partition={kind="natural"}}'


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.batch_size=1000000000000"],
            r"train.batch_size, train.steps, per_round, seeds: this takes about .* of ",
        ),
        (["train.steps=1000000000000"], r"train.batch_size, train.steps, per_round, seeds: .* of it for batches; "),
        (["train.epochs=1000000000"], r"train.batch_size, train.epochs, per_round, seeds: .* of it for batches; "),
        (
            ["sketch=2147483647"],
            r"sketch, clients, seeds: this takes about .* of it for sketches; allowed: .* GiB, which",
        ),
        (["rounds=1000000000"], r"rounds, per_round, clients, seeds: .* of it for records; allowed: "),
        (["train.model=mlp", "train.model_options.hidden=1000000000"], r"train.model, .* of it for models"),
        (["train.model=mlp", "train.model_options.hidden=1000000000000000"], r"train.model, .* of it for models"),
        (
            ["train.model=mlp", "train.model_options.hidden=4611686018427387904"],
            r"train.model: 'mlp' .*cannot be made",
        ),
        (
            ["train.model=torch.nn:Linear", "train.model_options={in_features=64, out_features=1000000000000}"],
            "for models",
        ),
        (
            ["clients=1000000000"],
            r"data: clients: 1000000000 is not allowed; allowed: at most 700, as class 8 has 140 ",
        ),
        (
            ["clients=1000000000", "data.partition=dirichlet"],
            r"data: clients: 1000000000 is not allowed; allowed: at ",
        ),
        (["clients=1000000000", "data.partition=iid"], r"data: clients: 1000000000 is not allowed; allowed: at most "),
        (
            ["clients=1000000000", SYNTHETIC],
            r"clients, data.largest: this takes about .* of it for the data; allowed: ",
        ),
        (["clients=10000000", SYNTHETIC, "data.largest=2000"], r"clients, data.largest: this takes about 3.* TiB of "),
        (
            ["clients=20000", "train.model=logistic", SYNTHETIC],
            r"clients \(or set sketch\), seeds: .* of it for distances between clients; ",
        ),
    ],
)
def test_what_no_machine_has_is_refused_in_a_sentence(
    overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: (2**35, 2**34))  # 32 GiB, whatever this machine has
    with pytest.raises(ValueError, match=message) as refused:
        simulate(Config.load(overrides=overrides))
    assert len(str(refused.value)) < 300


def test_a_memory_of_the_server_that_no_machine_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: (2**32, 2**31))
    many = ["clients=20000", SYNTHETIC, "train.model=mlp", "selectors={uniform={}}", "train.model_options.hidden=1000"]
    with pytest.raises(
        ValueError, match=r"server.aggregate, clients, train.model, seeds: .* for the server rule's memo"
    ):
        simulate(Config.load(overrides=[*many, "server.aggregate=memory"]))


def test_every_machine_has_more_than_nothing() -> None:
    found = memory.machine_memory()
    assert found is None or 0 < found[1] <= found[0]
    if sys.platform == "linux":
        assert found is not None


@pytest.mark.parametrize(("free", "said"), [(2**30, False), (2**24, True)])
def test_a_run_says_how_much_memory_it_takes_if_that_is_over_half_of_what_is_free(
    free: int, said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: (2**34, free))
    simulate(Config.load(overrides=["rounds=1", "seeds=[0]", "selectors={rota={}}"]))
    lines = [line for line in caplog.messages if "of memory" in line]
    assert len(lines) == said
    for line in lines:
        assert re.match(r"this takes about [\d.]+ MiB of memory, [\d.]+ MiB of it for models, which depends on ", line)
        assert line.endswith("train.model, server.average_last, per_round, seeds; 16 MiB are free")


def test_where_nothing_is_known_of_the_memory_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: None)
    memory.require_room([memory.Part("everything", 10**30, "rounds")])
    assert not caplog.messages


def test_on_a_gpu_models_and_updates_are_not_in_this_memory() -> None:
    found = {
        device: {part.what for part in memory.run_memory(Config(), np.ones(30), 1000, 100, device=device)}
        for device in ("cpu", "cuda")
    }
    assert found["cpu"] - found["cuda"] == {"models", "updates"}


MEASURED = """
import json, re, resource, sys
from pathlib import Path
from equifl.experiment.config import Config
from equifl.sim.loop import federation
from equifl.sim.simulation import load_data, simulate

def run(*overrides, **given):
    return simulate(Config.load(overrides=["seeds=[0]", "rounds=2", "evaluate_every=1", *overrides]), **given)

run("train.model=logistic")  # imports and compiles whatever runs import and compile
found, check = [], federation.require_room
federation.require_room = lambda parts: (found.append(sum(part.bytes for part in parts)), check(parts))
overrides = sys.argv[1:]
data = load_data(Config.load(overrides=overrides), None)
before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
run(*overrides, dataset=data)
status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's peak as well
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
print(json.dumps([found[0], peak - before]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize(
    "overrides",
    [
        ["train.model=mlp", "train.model_options.hidden=4000"],  # updates and models
        ["train.model=logistic", "train.steps=2000", "train.batch_size=500"],  # batches
        ["train.model=logistic", "train.epochs=200", "train.batch_size=5000"],
        ["train.model=mlp", "train.model_options.hidden=2000", "sketch=200000"],  # sketches
        ["train.model=logistic", "clients=2500", "train.steps=1", SYNTHETIC],  # distances
    ],
    ids=["updates", "steps", "epochs", "sketches", "distances"],
)
def test_the_estimate_is_within_a_factor_of_two_of_the_peak(overrides: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURED, *overrides]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    estimate, grown = json.loads(run.stdout)
    assert estimate > 2**28  # so that what else is allocated does not matter
    assert grown / 2 <= estimate <= 2 * grown
