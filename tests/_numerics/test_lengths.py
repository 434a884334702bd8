from typing import Any

import numpy as np
import pytest

from equifl._numerics.lengths import lengths


@pytest.mark.parametrize(("dtype", "least", "most"), [(np.float32, 1e-45, 1e38), (np.float64, 5e-324, 1e308)])
def test_lengths_of_the_smallest_and_largest_numbers(dtype: Any, least: float, most: float) -> None:
    rows = np.array([[least, 0], [0, most], [0, 0]], dtype)
    np.testing.assert_allclose(lengths(rows), np.abs(rows).max(axis=1).astype(np.float64))
    assert np.isfinite(lengths(np.full((1, 9), most, dtype))).all()
