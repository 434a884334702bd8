from pathlib import Path

import numpy as np
import pytest

from equifl.sim.data.catalogue import load
from equifl.sim.data.download import SOURCES
from tests.sim.data.dataset_checks import check, check_standardised


@pytest.mark.slow
def test_mnist(real_data: Path) -> None:
    mnist = load("mnist", data_dir=real_data)
    check(mnist)
    check_standardised(mnist)
    assert mnist.x_train.shape == (60_000, 1, 28, 28)
    assert mnist.x_test.shape == (10_000, 1, 28, 28)
    assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    np.testing.assert_allclose(mnist.x_train.min(), -0.1307 / 0.3081, atol=1e-3)  # the figures everyone uses


def test_fashion_mnist_has_the_format_of_mnist(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", SOURCES["mnist"])
    dataset = load("fashion-mnist", data_dir=real_data)
    assert dataset.name == "fashion-mnist"
    assert dataset.x_train.shape == (60_000, 1, 28, 28)
