"""Data sets as arrays: public ones, a made-up one, and one's own."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, integers, is_number, keywords, known, require
from equifl.extras import needed_by
from equifl.signals import Bools, Ints
from equifl.sim.data.arrays import Ids, Inputs, client_ids, examples, one_each, read_own, same_examples, same_kind
from equifl.sim.data.download import SOURCES, Progress, get, locate


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and their labels in two splits; checked here, once, and trusted everywhere else.

    Args:
        name: what it is called.
        x_train: (n, channels, height, width) for images, (n, features) for tables. As `load` gives them, every
            channel or feature has mean 0 and deviation 1 in the training split. Integers stay integers, to be looked
            up in an embedding; uint8 are pixels, and become float32 as all else does.
        y_train: (n,) labels, 0 to classes - 1.
        x_test, y_test, owners_test: the same for the test split.
        classes: how many there are.
        owners_train: (n,) whose each example is, integers or text, where there are natural clients.

    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.x_test.shape, digits.classes
    ((1442, 1, 8, 8), (355, 1, 8, 8), 10)
    """

    name: str
    x_train: Inputs
    y_train: Ints
    x_test: Inputs
    y_test: Ints
    classes: int
    owners_train: Ids | None = None
    owners_test: Ids | None = None

    def __post_init__(self) -> None:
        integer("classes", self.classes, least=2)
        if (self.owners_train is None) != (self.owners_test is None):
            raise ValueError("owners_train, owners_test: only one is there; allowed: both or none")
        for split in ("train", "test"):
            x = examples(f"x_{split}", getattr(self, f"x_{split}"))
            y = _labels(f"y_{split}", getattr(self, f"y_{split}"), len(x), self.classes)
            owners = getattr(self, f"owners_{split}")
            if owners is not None:
                owners = client_ids(f"owners_{split}", owners, len(x))
            for field, array in (("x", x), ("y", y), ("owners", owners)):
                object.__setattr__(self, f"{field}_{split}", array)
        same_examples(self.x_train, self.x_test)
        if self.owners_train is not None and self.owners_test is not None:
            same_kind(self.owners_train, self.owners_test)


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
    """One of `NAMES`, from files that are here or are downloaded, or made up.

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


def _digits() -> Dataset:
    with needed_by("the data set digits"):
        from sklearn.datasets import load_digits  # takes a second, and nothing else needs it

    bunch = load_digits()
    x, y = bunch.images[:, None], bunch.target
    return _standardised(_cut("digits", x, y, _every(5, y), classes=10))


def _idx(name: str, folder: Path) -> Dataset:
    """MNIST, and what has its format: four bytes, of which the last is the rank, the shape, the values."""

    def read(file: str) -> NDArray[Any]:
        content = gzip.decompress((folder / file).read_bytes())
        rank = content[3]
        shape = np.frombuffer(content, ">i4", rank, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)

    x_train, x_test = (read(f"{split}-images-idx3-ubyte.gz")[:, None] for split in ("train", "t10k"))
    y_train, y_test = (read(f"{split}-labels-idx1-ubyte.gz") for split in ("train", "t10k"))
    return _standardised(Dataset(name, x_train, y_train, x_test, y_test, classes=10))


def _cifar10(folder: Path) -> Dataset:
    """A label and 3x32x32 pixels a row."""
    batches = [folder / f"data_batch_{i}.bin" for i in range(1, 6)] + [folder / "test_batch.bin"]
    rows = np.concatenate([np.fromfile(batch, np.uint8) for batch in batches]).reshape(60_000, -1)
    x, y, test = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], np.arange(len(rows)) >= 50_000
    return _standardised(_cut("cifar10", x, y, test, classes=10))


def _heart_disease(folder: Path) -> Dataset:
    """Four hospitals; what one did not measure becomes 0, the mean of those who did."""
    files = [folder / f"processed.{site}.data" for site in ("cleveland", "hungarian", "switzerland", "va")]
    sites = [np.genfromtxt(file, delimiter=",", missing_values="?") for file in files]
    rows, owners = np.concatenate(sites), np.repeat(np.arange(4), [len(site) for site in sites])
    test = _every(3, owners)
    x, y = rows[:, :-1], (rows[:, -1] > 0).astype(np.int64)
    x = np.nan_to_num((x - np.nanmean(x[~test], axis=0)) / np.nanstd(x[~test], axis=0))
    return _cut("heart-disease", x, y, test, classes=2, owners=owners)


def _synthetic(
    *,
    clients: int = 30,
    alpha: float = 1.0,
    beta: float = 1.0,
    iid: bool = False,
    largest: int = 2000,
    seed: int = 0,
) -> Dataset:
    """synthetic(alpha, beta) of FedProx: client k labels x with argmax(W_k x + b_k).

    W_k, b_k ~ N(u_k, 1) with u_k ~ N(0, alpha): how much their models differ. x ~ N(v_k, diag(j^-1.2)) with
    v_k ~ N(B_k, 1), B_k ~ N(0, beta): how much their inputs do. If `iid`, all share one W and b, and v = 0.
    Nobody has more than `largest` examples. A client stays the same when others are added.
    """
    integer("clients", clients, least=1)
    integer("seed", seed, least=0)
    integer("largest", largest, least=5)  # every fifth is for testing
    for field, value in (("alpha", alpha), ("beta", beta)):
        require(field, value, is_number(value) and 0 <= value < np.inf, "0 or more")
    require("iid", iid, isinstance(iid, bool), "True or False")
    features, classes = 60, 10
    parts = []
    for client in range(clients):
        rng = np.random.default_rng([seed, 1 + client])
        u, B = (0.0, 0.0) if iid else rng.normal(0, [alpha, beta])
        v = np.zeros(features) if iid else rng.normal(B, 1, features)
        models = np.random.default_rng([seed, 0]) if iid else rng
        W, b = models.normal(u, 1, (features, classes)), models.normal(u, 1, classes)
        size = min(int(rng.lognormal(4, 2)) + 50, largest)
        x = rng.normal(v, np.arange(1, features + 1) ** -0.6, (size, features))
        parts.append((x.astype(np.float32), (x @ W + b).argmax(axis=1), np.full(size, client)))
    x, y, owners = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _standardised(_cut("synthetic", x, y, _every(5, owners), classes=classes, owners=owners))


def _arrays(*, path: str | Path | None = None, standardise: bool | None = None) -> Dataset:
    """One's own, from an .npz file with x_train, y_train, x_test, y_test, and owners_train, owners_test if any."""
    require("path", path, isinstance(path, str | Path) and Path(path).is_file(), "the path of an .npz file")
    require("standardise", standardise, standardise is None or isinstance(standardise, bool), "True or False")
    own = read_own(str(path))
    if own.faults:
        raise ValueError(own.faults[0])
    dataset = Dataset(Path(str(path)).stem, **own.arrays, classes=len(own.class_names))
    if dataset.x_train.dtype.kind == "f":
        return dataset if standardise is False else _standardised(dataset)
    why = "False, or leave it out: the examples are integers, which stay as they are; measurements are to be float32"
    require("standardise", standardise, not standardise, why)
    return dataset


def _cut(
    name: str, x: NDArray[Any], y: NDArray[Any], test: Bools, *, classes: int, owners: Ints | None = None
) -> Dataset:
    whose = (None, None) if owners is None else (owners[~test], owners[test])
    return Dataset(name, x[~test], y[~test], x[test], y[test], classes, *whose)


def _every(step: int, groups: Ints) -> Bools:
    """Every step-th example of each group, in the order they come in."""
    order = np.argsort(groups, kind="stable")
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return rank % step == step - 1


def _standardised(dataset: Dataset) -> Dataset:
    """Mean 0 and deviation 1 in the training split; in place, as the arrays were made just now."""
    train, test = (cast(NDArray[np.float32], x).reshape(*x.shape[:2], -1) for x in (dataset.x_train, dataset.x_test))
    mean = train.mean(axis=(0, 2), dtype=np.float64)[:, None]
    train -= mean
    test -= mean
    squares = np.einsum("nfp,nfp->f", train, train, dtype=np.float64)  # in one pass, without a second array
    deviation = np.sqrt(squares / (train.size / len(mean)))[:, None]
    deviation[deviation == 0] = 1  # a constant becomes 0
    train /= deviation
    test /= deviation
    return dataset


def _labels(field: str, values: ArrayLike, n: int, classes: int) -> Ints:
    y = one_each(field, integers(field, values), n)
    wrong = np.unique(y[(y < 0) | (y >= classes)])
    if len(wrong):
        raise ValueError(f"{field}: {wrong[:5].tolist()} are not allowed; allowed: 0 to {classes - 1}")
    return y


_CATALOGUE: dict[str, tuple[str, int | None, int | None, Callable[..., Dataset]]] = {
    "digits": ("handwritten digits, 8x8 pixels; comes with scikit-learn", 1_442, 355, _digits),
    "mnist": ("handwritten digits, 28x28 pixels", 60_000, 10_000, partial(_idx, "mnist")),
    "fashion-mnist": ("articles of clothing, 28x28 pixels", 60_000, 10_000, partial(_idx, "fashion-mnist")),
    "cifar10": ("photographs of ten kinds of things, 3x32x32 pixels", 50_000, 10_000, _cifar10),
    "heart-disease": ("patients of four hospitals, 13 measurements; natural clients", 614, 306, _heart_disease),
    "synthetic": ("synthetic(alpha, beta) of FedProx, 60 features; natural clients", None, None, _synthetic),
    "arrays": ("your own: an .npz file with x_train, y_train, x_test, y_test", None, None, _arrays),
}
NAMES = tuple(_CATALOGUE)
