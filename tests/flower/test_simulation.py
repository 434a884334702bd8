"""The real thing, twice, in fresh processes: node ids are other ones each time, and choices must not be."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.results import load_results

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
NAMES = [
    f"{inner}-{selector}"
    for inner in ("FedAvg", "FedAdam")
    for selector in ("Uniform", "PowerOfChoice", "DivFL", "SubTrunc", "UnionFL", "Rota")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulations")
    for turn in ("first", "again"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.flower.simulate", path, turn],
            cwd=ROOT,
            env=os.environ
            | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(path / "home"), "RAY_DISABLE_DOCKER_CPU_WARNING": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-4000:]
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_every_selector_trains_in_both_strategies(folder: Path, name: str) -> None:
    played = rows(folder / f"first-{name}")
    assert len(played) == 4
    assert all(len(set(row["cohort"])) == 5 for row in played)
    assert played[-1]["accuracy"] > played[0]["accuracy"] > 10
    assert len(played[-1]["client_accuracy"]) == 20


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_chooses_the_same_partitions_in_the_same_order(folder: Path, name: str) -> None:
    first, again = rows(folder / f"first-{name}"), rows(folder / f"again-{name}")
    assert [row["cohort"] for row in first] == [row["cohort"] for row in again]
    assert [row["client_accuracy"] for row in first] == [row["client_accuracy"] for row in again]


def test_a_run_continued_in_another_process_chooses_as_an_unbroken_one(folder: Path) -> None:
    whole, parts = rows(folder / "whole"), rows(folder / "parts")
    assert [row["cohort"] for row in parts] == [row["cohort"] for row in whole]
    assert [row["client_accuracy"] for row in parts] == [row["client_accuracy"] for row in whole]


def test_a_round_of_a_larger_cohort_ends_with_the_first_replies(folder: Path) -> None:
    played = rows(folder / "extra")
    assert [len(row["cohort"]) for row in played] == [15, 15]
    assert all(len(set(row["cohort"]) - set(row["late"])) >= 5 for row in played)
    assert played[-1]["local_loss"] is not None


def test_a_federation_gets_the_report_of_a_simulation(folder: Path) -> None:
    page = load_results(folder / "first-FedAvg-Rota").report().read_text()
    assert "Flower: 20 clients, 4 rounds, 1 seed" in page
    assert "equifl run experiment.toml" not in page, "there is no configuration file of a live federation"
