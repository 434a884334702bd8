"""CIFAR-10, from the files of its binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from equifl.sim.data.dataset import Dataset, cut, standardised


def read_cifar10(folder: Path) -> Dataset:
    """A label and 3x32x32 pixels a row."""
    batches = [folder / f"data_batch_{i}.bin" for i in range(1, 6)] + [folder / "test_batch.bin"]
    rows = np.concatenate([np.fromfile(batch, np.uint8) for batch in batches]).reshape(60_000, -1)
    x, y, test = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], np.arange(len(rows)) >= 50_000
    return standardised(cut("cifar10", x, y, test, classes=10))
