"""The loggers of examples/loggers, as their scripts run them."""

import csv
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
