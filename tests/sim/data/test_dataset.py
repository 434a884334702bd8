from typing import Any

import numpy as np
import pytest

import equifl.sim.data
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset, cut, every_nth, standardised
from tests.sim.data.dataset_checks import check_standardised


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {"name": "mine", "classes": 4}
    for split, n in (("train", 20), ("test", 8)):
        fields |= {f"x_{split}": rng.normal(3, 2, (n, 5)), f"y_{split}": np.arange(n) % 4}
    return fields | changes


def test_the_package_exports_the_value_and_its_loader() -> None:
    assert equifl.sim.data.Dataset is Dataset
    assert equifl.sim.data.load_dataset is load


def test_arrays_are_taken_as_float32_and_int64_and_pixels_as_numbers() -> None:
    dataset = Dataset(**arrays(y_train=np.arange(20, dtype=np.uint8) % 4))
    assert dataset.x_train.dtype == np.float32
    assert dataset.y_train.dtype == np.int64
    pixels = np.full((20, 1, 3, 3), 255, np.uint8)
    assert Dataset(**arrays(x_train=pixels, x_test=pixels[:8])).x_train.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, r"classes: 1 is not allowed; allowed: an integer of 2 or more"),
        ({"classes": 3}, r"y_train: \[3\] are not allowed; allowed: 0 to 2"),
        ({"y_test": np.full(8, -1)}, r"y_test: \[-1\] are not allowed; allowed: 0 to 3"),
        ({"y_test": np.zeros(7, int)}, r"y_test: shape \(7,\) is not allowed; allowed: \(8,\)"),
        ({"y_train": np.zeros((20, 1), int)}, r"y_train: shape \(20, 1\) is not allowed.*ravel\(\) makes it so"),
        ({"x_test": np.zeros((8, 6))}, r"x_test: shape \(8, 6\) is not allowed; allowed: \(8, 5\)"),
        ({"x_test": np.zeros((8, 5), int)}, r"x_train, x_test: float32 and int64 are not allowed"),
        ({"x_train": np.full((20, 5), np.inf)}, r"x_train: not all finite: 20 of 20 examples"),
        ({"owners_train": np.zeros(20, int)}, r"owners_train, owners_test: only one is there"),
        (
            {"owners_train": np.zeros(20, int), "owners_test": np.array(["a"] * 8)},
            r"owners_train, owners_test: text in one, integers in the other",
        ),
    ],
)
def test_what_does_not_fit_together_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset(**arrays(**changes))


def test_standardised_by_the_training_split() -> None:
    given = arrays()
    dataset = standardised(Dataset(**given))
    check_standardised(dataset)
    expected = (given["x_test"] - given["x_train"].mean(0)) / given["x_train"].std(0)
    np.testing.assert_allclose(dataset.x_test, expected, atol=1e-5)


def test_a_constant_feature_becomes_zero() -> None:
    x_train, x_test = np.full((20, 2), 0.1), np.full((8, 2), 0.1)
    x_train[0, 1] = 5
    dataset = standardised(Dataset(**arrays(x_train=x_train, x_test=x_test)))
    np.testing.assert_allclose(dataset.x_train[:, 0], 0, atol=1e-6)
    np.testing.assert_allclose(dataset.x_test[:, 0], 0, atol=1e-6)


def test_every_nth_of_each_group_is_for_testing() -> None:
    groups = np.array([7, 7, 5, 7, 5, 7, 5, 5, 5])
    test = every_nth(2, groups)
    assert test.tolist() == [False, True, False, False, True, True, False, True, False]
    whole = cut("mine", np.arange(9.0)[:, None], np.arange(9) % 3, test, classes=3, owners=groups)
    assert whole.x_test.ravel().tolist() == [1, 4, 5, 7]
    assert whole.owners_train is not None
    assert whole.owners_train.tolist() == groups[~test].tolist()
