"""The loggers of examples/loggers, as their scripts run them."""

import csv
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from equifl import Callback, simulate
from equifl.experiment.results import Records

LOGGERS = Path(__file__).parents[1] / "examples" / "loggers"


@pytest.mark.slow
def test_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(LOGGERS / "csv_file.py"), run_name="__main__")
    with (tmp_path / "rounds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10 * 2 * 2
    assert [row["round"] for row in rows if row["accuracy"]] == ["4"] * 4 + ["9"] * 4  # evaluated every five rounds
    assert all(float(row["local_loss"]) > 0 for row in rows)


@pytest.mark.slow
def test_csv_of_a_resumed_run_has_every_line_once(tmp_path: Path) -> None:
    CsvFile = runpy.run_path(str(LOGGERS / "csv_file.py"))["CsvFile"]

    class Stop(Callback):
        def on_round(self, played: int, records: Records) -> bool:
            return played < 2

    def rows(*more: Callback, seeds: int = 1) -> list[tuple[str, str]]:
        loggers = [CsvFile(tmp_path / "rounds.csv"), *more]
        tiny: Any = {"selectors": ["uniform"], "model": "logistic", "rounds": 4, "clients": 10, "evaluate_every": 2}
        simulate(**tiny, seeds=seeds, out=tmp_path / "run", callbacks=loggers)
        with (tmp_path / "rounds.csv").open(newline="") as file:
            return [(row["round"], row["seed"]) for row in csv.DictReader(file)]

    first = [(str(round), "0") for round in range(4)]
    assert rows(Stop()) == first[:2]
    assert rows() == first
    assert rows() == first  # a finished folder
    assert rows(seeds=2) == [*first, *((round, "1") for round, _ in first)]  # one that grows


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    settings = os.environ | {"PYTHONPATH": str(LOGGERS.parents[1])} | quiet
    command = [sys.executable, str(LOGGERS / "mlflow_runs.py")]  # apart, since MLflow is set up by the environment
    done = subprocess.run(
        command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    params = list(tmp_path.glob("mlruns/*/*/params"))
    runs = {((folder / "selector").read_text(), (folder / "seed").read_text()): folder.parent for folder in params}
    assert set(runs) == {(name, seed) for name in ("uniform", "rota") for seed in "01"}
    metrics = runs["rota", "1"] / "metrics"
    steps = {
        name: [line.split()[2] for line in (metrics / name).read_text().splitlines()]
        for name in ("local_loss", "accuracy")
    }
    assert steps == {"local_loss": [str(round) for round in range(10)], "accuracy": ["4", "9"]}


@pytest.mark.slow
def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(LOGGERS / "tensorboard_events.py"), run_name="__main__")
    runs = {path.relative_to(tmp_path / "events").as_posix() for path in (tmp_path / "events").glob("*/*")}
    assert runs == {f"{name}/seed {seed}" for name in ("uniform", "rota") for seed in (0, 1)}
    events = reader.EventAccumulator(str(tmp_path / "events" / "rota" / "seed 1"))
    events.Reload()
    assert [event.step for event in events.Scalars("local_loss")] == list(range(10))
    assert [event.step for event in events.Scalars("accuracy")] == [4, 9]


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb")
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    quiet |= {f"WANDB_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "CACHE", "DATA")}
    settings = os.environ | {"PYTHONPATH": str(LOGGERS.parents[1])} | quiet
    command = [sys.executable, str(LOGGERS / "weights_and_biases.py")]  # apart, since it starts a process of its own
    done = subprocess.run(
        command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    files = list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2 * 2  # a run a selector and seed
    for file in files:
        content = file.read_bytes()
        assert content.count(b"local_loss") >= 10
        assert b"dissimilarity" in content
