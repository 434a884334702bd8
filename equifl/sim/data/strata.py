"""The labels that a partition goes by: the classes, or where numbers are predicted the tenth that each is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equifl.signals import Floats, Ints
from equifl.sim.data.dataset import Dataset, Ids

TENTHS = 10
ANY_TARGETS = ("iid", "natural")  # partitions that do not look at targets


@dataclass(frozen=True, eq=False)
class Strata:
    """What a partition needs of a data set: a label for each example, and whose it is."""

    name: str
    y_train: Ints
    y_test: Ints
    classes: int
    owners_train: Ids | None
    owners_test: Ids | None


def strata(kind: str, dataset: Dataset) -> Strata:
    """The labels of a data set for a partition of this kind.

    Numbers are labelled by tenths of the training examples, from the lowest (0) to the highest (9), so that clients
    that have two of ten classes have targets from two ranges.
    """
    y_train, y_test, classes = dataset.y_train, dataset.y_test, dataset.classes
    if kind in ANY_TARGETS and (y_train.ndim > 1 or classes is None):
        y_train, y_test, classes = np.zeros(len(y_train), np.int64), np.zeros(len(y_test), np.int64), 1
    if y_train.ndim > 1:
        raise ValueError(
            f"partition: {kind!r} goes by one target for each example, and {dataset.name} has {y_train.shape[1]}; "
            f"allowed: {', '.join(ANY_TARGETS)}"
        )
    if classes is None:
        y_train, y_test, classes = *_tenths(y_train, y_test), TENTHS
    return Strata(dataset.name, y_train, y_test, classes, dataset.owners_train, dataset.owners_test)


def _tenths(train: NDArray[np.floating], test: NDArray[np.floating]) -> tuple[Ints, Ints]:
    """Which tenth each number is in; of the training split they are equally large, ties in their order.

    >>> _tenths(np.arange(20.0), np.array([-5.0, 3.0, 99.0]))[1]
    array([0, 1, 9])
    """
    rank = np.empty(len(train), np.int64)
    order = np.argsort(train, kind="stable")
    rank[order] = np.arange(len(train))
    starts: Floats = train[order][[place * len(train) // TENTHS for place in range(1, TENTHS)]]
    return rank * TENTHS // len(train), np.searchsorted(starts, test, side="right")
