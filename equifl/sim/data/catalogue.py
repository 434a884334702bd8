"""The data sets by name: which there are, what their options are, and loading one.

A new data set is a file in this folder and an entry in the list at the end; one that is downloaded also says in
`download.SOURCES` where its files come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from equifl._numerics.checks import keywords, known
from equifl.sim.data.cifar10 import read_cifar10
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.diabetes import load_diabetes
from equifl.sim.data.digits import load_digits
from equifl.sim.data.download import SOURCES, Progress, get, locate
from equifl.sim.data.heart_disease import read_heart_disease
from equifl.sim.data.idx import read_idx
from equifl.sim.data.own_arrays import load_own_arrays
from equifl.sim.data.shakespeare import read_shakespeare
from equifl.sim.data.synthetic import make_synthetic


@dataclass(frozen=True)
class Entry:
    """What there is to say of a data set before it is loaded.

    Args:
        about: what it is, in one line.
        train: training examples; None = that depends on the options.
        test: test examples.
        download: bytes; 0 = it needs none.
        folder: where its files are; None = nowhere yet.

    >>> listing()["digits"].about
    'handwritten digits, 8x8 pixels; comes with scikit-learn'
    """

    about: str
    train: int | None
    test: int | None
    download: int
    folder: Path | None


def load(name: str, *, data_dir: Path | None = None, progress: Progress | None = None, **options: Any) -> Dataset:
    """One of `NAMES`, from local files, downloaded, or synthetic.

    Args:
        name: one of `NAMES`.
        data_dir: where files are looked for first, and downloaded to; see `equifl.sim.data.download.places`.
        progress: called with a file's name, the bytes done, and the bytes in all (None if unknown) as it downloads.
        options: for "synthetic" clients, alpha, beta, iid, largest and seed; for "arrays" path and standardise.
    """
    known(f"{name} option", options, options_of(name))
    read = _CATALOGUE[name][-1]
    return read(get(name, data_dir, progress), **options) if name in SOURCES else read(**options)


def listing(data_dir: Path | None = None) -> dict[str, Entry]:
    """Every data set by name: what it is, and where."""
    entries = {}
    for name, (about, train, test, _) in _CATALOGUE.items():
        here = (SOURCES[name].download, locate(name, data_dir)) if name in SOURCES else (0, None)
        entries[name] = Entry(about, train, test, *here)
    return entries


def options_of(name: str) -> tuple[str, ...]:
    """The options that `load` takes for this data set."""
    known("data set", [name], NAMES)
    return keywords(_CATALOGUE[name][-1])


# What it is, training and test examples if they are known beforehand, and what loads it: from the folder of its files
# if it is in `SOURCES`, and with its keywords as options.
_CATALOGUE: dict[str, tuple[str, int | None, int | None, Callable[..., Dataset]]] = {
    "digits": ("handwritten digits, 8x8 pixels; comes with scikit-learn", 1_442, 355, load_digits),
    "mnist": ("handwritten digits, 28x28 pixels", 60_000, 10_000, partial(read_idx, "mnist")),
    "fashion-mnist": ("articles of clothing, 28x28 pixels", 60_000, 10_000, partial(read_idx, "fashion-mnist")),
    "cifar10": ("photographs of ten kinds of things, 3x32x32 pixels", 50_000, 10_000, read_cifar10),
    "heart-disease": ("patients of four hospitals, 13 measurements; natural clients", 614, 306, read_heart_disease),
    "diabetes": (
        "442 patients, 10 measurements, a number to predict; comes with scikit-learn",
        354,
        88,
        load_diabetes,
    ),
    "shakespeare": ("the next character in the plays, 99 speakers; natural clients", None, None, read_shakespeare),
    "synthetic": ("synthetic(alpha, beta) of FedProx, 60 features; natural clients", None, None, make_synthetic),
    "arrays": ("your own: an .npz file with x_train, y_train, x_test, y_test", None, None, load_own_arrays),
}
NAMES = tuple(_CATALOGUE)
