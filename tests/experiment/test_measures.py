from typing import Any

import numpy as np
import pytest

from equifl.experiment.measures import (
    chosen_measures,
    expected_accuracy,
    more_measures,
    usual_measures,
    with_test_classes,
)
from equifl.experiment.task_table import ACCURACY, Score
from equifl.metrics import noise_floor

RECORD: dict[str, Any] = {
    "selector": "rota",
    "seed": 0,
    "round": 1,
    "accuracy": 75.0,
    "client_accuracy": [50.0, 100.0, None],
    "client_loss": [1.0, 3.0],
    "class_accuracy": [50.0, 100.0],
    "global_loss": 2.0,
}
CLASSES = [[2, 0], [0, 2], [1, 1]]


def value(name: str, row: dict[str, Any]) -> Any:
    return chosen_measures([name])[0].read(row)


def test_measures_of_what_a_record_holds() -> None:
    assert value("variance", RECORD) == 625.0
    assert (value("minimum", RECORD), value("q10", RECORD), value("q20", RECORD)) == (50.0, 55.0, 60.0)
    assert value("loss_std", RECORD) == 1.0
    assert value("loss_worst10", RECORD) == 3.0


def test_without_noise_and_the_floor_of_noise() -> None:
    row = RECORD | {"test_classes": CLASSES}
    assert expected_accuracy(row) == [50.0, 100.0, 75.0]
    assert value("expected_dissimilarity", row) == pytest.approx((50 + 25 + 25) / 3)
    assert value("expected_worst10", row) == 50.0
    assert value("noise_floor", row) == pytest.approx(100 * noise_floor(0.75, [2, 2, 2]))


def test_records_of_earlier_versions_know_fewer_measures() -> None:
    old = {key: RECORD[key] for key in ("selector", "seed", "round", "accuracy", "client_accuracy")}
    for name in ("expected_dissimilarity", "expected_worst10", "noise_floor", "loss_std", "global_loss"):
        assert value(name, old) is None
    assert value("q10", old) == 55.0
    assert value("q10", {"accuracy": 3.0}) is None


def test_classes_of_the_first_record_are_those_of_the_run() -> None:
    first = {"selector": "rota", "seed": 0, "round": 0, "test_classes": CLASSES}
    other = {**RECORD, "seed": 1}
    found = list(with_test_classes([first, {**first, "seed": 2}, RECORD, other]))
    assert found[2]["test_classes"] == CLASSES
    assert "test_classes" not in found[3]
    assert "test_classes" not in RECORD  # which is not changed


def test_measures_of_other_scores_are_those_that_make_sense() -> None:
    names = {measure.name for measure in more_measures(Score("R2", percent=False))}
    assert {"q10", "variance", "loss_std"} <= names
    assert not names & {"jain", "angle", "accuracy_entropy", "expected_dissimilarity", "noise_floor"}
    row = {"client_score": [-1.0, 1.0]}
    assert chosen_measures(["minimum"], Score("R2", percent=False))[0].read(row) == -1.0


def test_names_and_titles_are_different() -> None:
    every = [*usual_measures(ACCURACY), *more_measures(ACCURACY)]
    assert len({measure.name for measure in every}) == len({measure.title for measure in every}) == len(every)
    assert not np.isnan([measure.digits for measure in every]).any()


def test_the_names_of_measures_are_a_list_of_known_ones() -> None:
    assert [measure.name for measure in chosen_measures(iter(["gini", "std"]))] == ["gini", "std"]
    with pytest.raises(ValueError, match=r"measures: 'gini' is not allowed; allowed: a list of names, \['gini'\]"):
        chosen_measures("gini")
    with pytest.raises(ValueError, match=r"measures: \[\] is not allowed; allowed: accuracy, "):
        chosen_measures([])
