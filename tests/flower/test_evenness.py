from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import Rota
from equifl.experiment.results import load_results
from tests.flower.pretend_grid import fair, grid_of, play, rows

pytestmark = pytest.mark.usefixtures("inside_a_run")


def test_what_is_recorded_is_what_flower_gets(tmp_path: Path) -> None:
    result = play(fair(Rota(), folder=tmp_path), grid_of(), 3)
    reported, row = result.evaluate_metrics_clientapp[3], rows(tmp_path)[-1]
    assert reported["dissimilarity"] == row["dissimilarity"]
    assert reported["worst10"] == pytest.approx(min(row["client_accuracy"]), abs=1e-4)
    assert reported["std"] == row["std"]
    assert reported["participation-gini"] == row["participation"]["gini"]
    assert "partition-id" not in reported, "a mean of identities says nothing"
    assert row["accuracy"] == pytest.approx(100 * reported["eval_acc"])
    assert row["bytes_up"] == 3 * 4 * 210
    assert load_results(tmp_path).report().stat().st_size > 1e6


def test_a_report_names_the_clients_and_says_which_of_them_participation_counts(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path, participation="present"), grid_of(), 3)
    page = load_results(tmp_path).report().read_text()
    assert "partition-id:3" in page
    assert "Participation counts the clients that were present in the last round." in page


@pytest.mark.parametrize("participation", ["all", "present"])
def test_intervals_are_for_all_clients_that_were_ever_met(participation: Any, tmp_path: Path) -> None:
    grid, strategy = grid_of(6), fair(Rota(), folder=tmp_path, participation=participation)
    play(strategy, grid, 3)
    assert rows(tmp_path)[-1]["intervals"] == {}, "all evaluated"
    grid.offline = {next(iter(grid.partitions))}
    play(strategy, grid, 1, strategy.arrays)
    assert rows(tmp_path)[-1]["evaluated"] == 5
    assert rows(tmp_path)[-1]["intervals"]["std"] > 0
    assert rows(tmp_path)[-1]["participants"] == (6 if participation == "all" else 5)


def test_a_report_says_of_how_many_clients_its_figures_are(tmp_path: Path) -> None:
    play(fair(Rota(), FedAvg(fraction_evaluate=0.5), folder=tmp_path, probe="newcomers"), grid_of(10), 2)
    row = rows(tmp_path)[-1]
    assert row["evaluated"] == sum(value is not None for value in row["client_accuracy"]) == 5
    half = row["intervals"]["dissimilarity"]
    page = load_results(tmp_path).report().read_text()
    assert "5 of 10 clients evaluated last; for all of them that says: accuracy" in page
    assert f"dissimilarity {row['dissimilarity']:.1f} ± {half:.1f} points (95 % intervals)" in page
