from pathlib import Path

import numpy as np

from equifl.sim.data.catalogue import load
from tests.sim.data.dataset_checks import check


def test_heart_disease(real_data: Path) -> None:
    heart = load("heart-disease", data_dir=real_data)
    check(heart)
    assert heart.x_train.shape == (614, 13)
    assert heart.x_test.shape == (306, 13)
    assert heart.classes == 2
    assert heart.owners_train is not None
    assert heart.owners_test is not None
    assert np.bincount(heart.owners_train).tolist() == [202, 196, 82, 134]
    assert np.bincount(heart.owners_test).tolist() == [101, 98, 41, 66]
    assert int(heart.y_train.sum() + heart.y_test.sum()) == 509  # of the 920 are ill
    assert np.ptp(heart.x_train[heart.owners_train == 2][:, 4]) == 0  # cholesterol was not measured in Switzerland


def test_heart_disease_is_standardised_on_what_was_measured(real_data: Path) -> None:
    heart = load("heart-disease", data_dir=real_data)
    for column in heart.x_train.T.astype(np.float64):
        measured = column[column != 0]  # the mean of all is nobody's value
        np.testing.assert_allclose(measured.mean(), 0, atol=1e-5)
        np.testing.assert_allclose(measured.std(), 1, atol=1e-4)
