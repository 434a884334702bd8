"""MNIST and Fashion-MNIST: images and labels in files of the IDX format."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.sim.data.dataset import Dataset, standardised


def read_idx(name: str, folder: Path) -> Dataset:
    """MNIST, and what has its format: four bytes, of which the last is the rank, the shape, the values."""

    def read(file: str) -> NDArray[Any]:
        content = gzip.decompress((folder / file).read_bytes())
        rank = content[3]
        shape = np.frombuffer(content, ">i4", rank, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)

    x_train, x_test = (read(f"{split}-images-idx3-ubyte.gz")[:, None] for split in ("train", "t10k"))
    y_train, y_test = (read(f"{split}-labels-idx1-ubyte.gz") for split in ("train", "t10k"))
    return standardised(Dataset(name, x_train, y_train, x_test, y_test, classes=10))
