import numpy as np
import pytest

from equifl.hosts.attendance import Attendance
from equifl.hosts.evenness import evenness
from equifl.metrics import participation


def counted(*cohorts: list[int], clients: int) -> Attendance:
    attendance = Attendance()
    for cohort in cohorts:
        attendance.count(cohort, np.arange(clients), clients)
    return attendance


def test_a_row_has_accuracy_by_client_and_the_metrics_are_the_same_figures() -> None:
    found = {0: (0.9, 30.0), 2: (0.5, 10.0)}
    row, metrics = evenness(counted([0, 1], [0, 2], clients=3), np.array([2, 1, 1]), np.arange(3), found)
    assert row["client_accuracy"] == [90.0, None, 50.0]
    assert row["accuracy"] == pytest.approx(80.0)
    assert row["dissimilarity"] == metrics["dissimilarity"] == pytest.approx(40.0)
    assert row["participation"] == participation([2, 1, 1], [[0, 1], [0, 2]])
    assert metrics["participation-gini"] == row["participation"]["gini"]
    assert metrics["participation-clients"] == row["participants"] == 3


def test_evaluations_of_a_part_of_the_clients_have_their_number_and_intervals() -> None:
    found = {i: (0.1 * i, 10.0 * (i + 1)) for i in range(5)}
    row, metrics = evenness(counted([0], clients=20), np.ones(20, np.int64), np.arange(20), found)
    assert row["evaluated"] == metrics["evaluated"] == 5
    assert row["intervals"].keys() == {"accuracy", "dissimilarity", "std"}
    assert metrics["dissimilarity-interval"] == row["intervals"]["dissimilarity"] > 0
    row, metrics = evenness(counted([0], clients=5), np.ones(5, np.int64), np.arange(5), found)
    assert (row["evaluated"], row["intervals"]) == (5, {})
    assert "dissimilarity-interval" not in metrics


def test_ids_that_belong_to_nobody_do_not_count_for_participation() -> None:
    row, _ = evenness(counted([1, 2], [0, 1], clients=3), np.array([3, 9, 1]), np.array([0, 2]), {})
    assert row == {"participation": participation([3, 1], [[1], [0]]), "participants": 2}


def test_ids_that_belong_to_nobody_are_not_among_the_accuracies() -> None:
    row, _ = evenness(counted([0], clients=20), np.ones(20, np.int64), np.arange(10), {3: (0.5, 1.0)})
    assert len(row["client_accuracy"]) == 10


def test_nobody_yet() -> None:
    row, metrics = evenness(Attendance(), np.zeros(0, np.int64), np.zeros(0, np.int64), {})
    assert row == {"participation": participation([0], []), "participants": 0}
    assert "dissimilarity" not in metrics
