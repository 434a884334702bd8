"""What holds of every data set that is loaded by its name."""

import numpy as np

from equifl.sim.data.catalogue import listing
from equifl.sim.data.dataset import Dataset


def check_standardised(dataset: Dataset) -> None:
    for channel in np.moveaxis(dataset.x_train, 1, 0):
        np.testing.assert_allclose(channel.mean(dtype=np.float64), 0, atol=1e-5)
        np.testing.assert_allclose(channel.std(dtype=np.float64), 1, atol=1e-4)


def check(dataset: Dataset) -> None:
    assert dataset.x_train.dtype == dataset.x_test.dtype == np.float32
    assert dataset.y_train.dtype == dataset.y_test.dtype == np.int64
    assert dataset.x_train.flags.c_contiguous
    assert dataset.x_train.flags.writeable  # torch warns of arrays that are not
    entry = listing()[dataset.name]
    assert entry.train in (None, len(dataset.x_train))
    assert entry.test in (None, len(dataset.x_test))
    assert np.unique(dataset.y_train).tolist() == list(range(dataset.outputs))
