from pathlib import Path

import numpy as np
import pytest

from equifl.sim.data.catalogue import load
from tests.sim.data.dataset_checks import check, check_standardised


@pytest.mark.slow
def test_cifar10(real_cifar10: Path) -> None:
    cifar10 = load("cifar10", data_dir=real_cifar10)
    check(cifar10)
    check_standardised(cifar10)
    assert cifar10.x_train.shape == (50_000, 3, 32, 32)
    assert cifar10.x_test.shape == (10_000, 3, 32, 32)
    assert cifar10.y_train[:5].tolist() == [6, 9, 9, 4, 1]
    assert cifar10.y_test[:5].tolist() == [3, 8, 8, 0, 6]
    assert np.bincount(cifar10.y_train).tolist() == [5000] * 10
    # The first picture, a frog, begins with the red, green and blue of (59, 62, 63); 0 and 255 occur somewhere.
    black = cifar10.x_train.min(axis=(0, 2, 3))
    scale = cifar10.x_train.max(axis=(0, 2, 3)) - black
    first = (cifar10.x_train[0, :, 0, 0] - black) / scale * 255
    np.testing.assert_allclose(first, [59, 62, 63], atol=1e-3)
