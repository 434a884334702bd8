from typing import Any

import numpy as np
import pytest

from equifl.hosts.usable import (
    MisfitError,
    MissingMetricError,
    SetAsideError,
    accuracies,
    accuracy_and_size,
    all_finite,
    check_array,
    count,
    number,
    training_loss,
)


def test_a_number_is_finite_and_a_count_is_above_0() -> None:
    assert number({"loss": 2}, "loss") == 2.0
    assert count({"n": 2.0**53}, "n") == 2.0**53
    for value in (float("nan"), float("inf"), "2", None, [2.0]):
        with pytest.raises(SetAsideError, match="loss is "):
            number({"loss": value}, "loss")
    for value in (0, -1, 2.0**54):
        with pytest.raises(SetAsideError, match="n is "):
            count({"n": value}, "n")
    with pytest.raises(MissingMetricError, match=r"no metric `loss` \(there: `acc`, `n`\)"):
        number({"n": 1, "acc": 0.5}, "loss")


def test_a_loss_is_read_where_it_is_needed_or_there() -> None:
    assert training_loss({}, "loss", needed=False) is None
    assert training_loss({"loss": -1.0}, "loss", needed=False) == -1.0
    with pytest.raises(MisfitError, match="a loss must be 0 or more"):
        training_loss({"loss": -1.0}, "loss", needed=True)
    with pytest.raises(MissingMetricError):
        training_loss({}, "loss", needed=True)


def test_an_accuracy_is_from_0_to_1() -> None:
    assert accuracy_and_size({"acc": 0.5, "n": 7}, "acc", "n") == (0.5, 7.0)
    assert accuracy_and_size({"acc": 1}, "acc", "n") == (1.0, 1.0)
    with pytest.raises(SetAsideError, match="acc is not from 0 to 1"):
        accuracy_and_size({"acc": 50.0}, "acc", "n")


def test_accuracies_are_counted_client_by_client() -> None:
    reported: dict[int, dict[str, Any]] = {
        3: {"acc": 0.5},
        4: {"n": 2},
        5: {"acc": "x"},
        6: {"acc": 10**400},
        7: {"n": 1},
    }
    found, why = accuracies(reported, "acc", "n")
    assert found == {3: (0.5, 1.0)}
    assert (why["no metric `acc` (there: `n`)"], why["acc is 'x'"], why.total()) == (2, 1, 4)


def test_arrays_must_stay_finite_in_the_type_that_was_sent() -> None:
    sent = np.zeros(2, np.float16)
    check_array("w", np.array([1.0, -3e4]), sent)
    for array in (np.array([np.nan, 0]), np.array([1e6, 0], np.float32)):
        with pytest.raises(SetAsideError, match="not finite, or beyond 32752"):
            check_array("w", array, sent)
    for dtype in (np.float32, np.float64):
        check_array("w", np.array([1e17, 0], dtype), np.zeros(2, dtype))
        with pytest.raises(SetAsideError, match=r"not finite, or beyond 1e\+18"):
            check_array("w", np.array([-1e19, 0], dtype), np.zeros(2, dtype))
    with pytest.raises(SetAsideError, match="its array w is of type <U1, not of numbers"):
        check_array("w", np.array(["a"]), sent)
    assert all_finite([np.zeros(2), np.zeros(2, int)])
    assert not all_finite([np.zeros(2), np.array([np.inf])])


def test_a_reason_is_one_line_whatever_the_client_sent() -> None:
    assert str(SetAsideError("two\nlines\x1b[31m")) == "two lines [31m"
    assert len(str(SetAsideError("a" * 1000))) == 303
