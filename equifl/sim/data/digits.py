"""The handwritten digits that come with scikit-learn."""

from __future__ import annotations

from equifl.extras import needed_by
from equifl.sim.data.dataset import Dataset, cut, every_nth, standardised


def load_digits() -> Dataset:
    """1,797 handwritten digits of 8x8 pixels; every fifth of a class is for testing."""
    with needed_by("the data set digits"):
        from sklearn.datasets import load_digits as from_sklearn  # takes a second, and nothing else needs it

    bunch = from_sklearn()
    x, y = bunch.images[:, None], bunch.target
    return standardised(cut("digits", x, y, every_nth(5, y), classes=10))
