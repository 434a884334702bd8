"""The diabetes data that come with scikit-learn: numbers to predict."""

from __future__ import annotations

import numpy as np

from equifl.extras import needed_by
from equifl.sim.data.dataset import Dataset, cut, standardised


def load_diabetes() -> Dataset:
    """442 patients, ten measurements each, and how far their disease came in a year; every fifth is for testing.

    The measure of progression, too, has mean 0 and deviation 1 in the training split.
    """
    with needed_by("the data set diabetes"):
        from sklearn.datasets import load_diabetes as from_sklearn  # takes a second, and nothing else needs it

    bunch = from_sklearn(scaled=False)
    test = np.arange(len(bunch.target)) % 5 == 4
    return standardised(cut("diabetes", bunch.data, bunch.target, test, classes=None))
