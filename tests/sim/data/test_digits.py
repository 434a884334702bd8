import numpy as np

from equifl.sim.data.catalogue import load
from tests.sim.data.dataset_checks import check, check_standardised


def test_digits() -> None:
    digits = load("digits")
    check(digits)
    check_standardised(digits)
    assert digits.x_train.shape == (1442, 1, 8, 8)
    assert digits.x_test.shape == (355, 1, 8, 8)
    members = np.bincount(np.concatenate([digits.y_train, digits.y_test]))
    np.testing.assert_array_equal(np.bincount(digits.y_test), members // 5)
    np.testing.assert_array_equal(load("digits").x_train, digits.x_train)
