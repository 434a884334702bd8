"""A data set as arrays: what it takes, the checks it is held to, and how to cut and standardise it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, integers, numbers, shaped
from equifl.signals import Bools, Ints

Inputs: TypeAlias = NDArray[np.float32] | NDArray[np.int64]  # numbers to compute with, or tokens to look up
Targets: TypeAlias = NDArray[Any]  # int64: classes; float32: numbers
Ids: TypeAlias = NDArray[np.int64] | NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and their labels in two splits; checked here, once, and trusted everywhere else.

    Args:
        name: what it is called.
        x_train: (n, channels, height, width) for images, (n, features) for tables. As `load_dataset` gives them, every
            channel or feature has mean 0 and deviation 1 in the training split. Integers stay integers, to be looked
            up in an embedding; uint8 are pixels, and become float32 as all else does.
        y_train: (n,) labels, 0 to classes - 1; (n, positions) if every position has one; or, without classes, numbers:
            (n,) or (n, targets).
        x_test, y_test, owners_test: the same for the test split.
        classes: how many there are; None = the targets are numbers, for regression.
        owners_train: (n,) whose each example is, integers or text, where there are natural clients.

    >>> from equifl.sim.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits.x_train.shape, digits.x_test.shape, digits.classes
    ((1442, 1, 8, 8), (355, 1, 8, 8), 10)
    """

    name: str
    x_train: Inputs
    y_train: Targets
    x_test: Inputs
    y_test: Targets
    classes: int | None
    owners_train: Ids | None = None
    owners_test: Ids | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            integer("classes", self.classes, least=2)
        if (self.owners_train is None) != (self.owners_test is None):
            raise ValueError("owners_train, owners_test: only one is there; allowed: both or none")
        for split in ("train", "test"):
            x = examples(f"x_{split}", getattr(self, f"x_{split}"))
            y = _targets(f"y_{split}", getattr(self, f"y_{split}"), len(x), self.classes)
            owners = getattr(self, f"owners_{split}")
            if owners is not None:
                owners = client_ids(f"owners_{split}", owners, len(x))
            for field, array in (("x", x), ("y", y), ("owners", owners)):
                object.__setattr__(self, f"{field}_{split}", array)
        same_examples(self.x_train, self.x_test)
        shaped("y_test", self.y_test, (len(self.y_test), *self.y_train.shape[1:]))
        if self.owners_train is not None and self.owners_test is not None:
            same_kind(self.owners_train, self.owners_test)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for an example, or for each of its positions."""
        if self.classes is not None:
            return self.classes
        return 1 if self.y_train.ndim == 1 else int(self.y_train.shape[1])


def digest(dataset: Dataset) -> str:
    """What tells these examples from others: the first 16 hexadecimal digits of the SHA-256 of all arrays.

    >>> x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    >>> digest(Dataset("mine", x, y, x, y, 2)) == digest(Dataset("yours", x, y, x, y, 2))
    True
    """
    found = hashlib.sha256(str(dataset.classes).encode())
    for split in ("train", "test"):
        for field in ("x", "y", "owners"):
            array = getattr(dataset, f"{field}_{split}")
            if array is not None:
                found.update(f"{field}_{split} {array.dtype.str} {array.shape}".encode())
                found.update(np.ascontiguousarray(array).data.cast("B"))
    return found.hexdigest()[:16]


def cut(
    name: str, x: NDArray[Any], y: NDArray[Any], test: Bools, *, classes: int | None, owners: Ints | None = None
) -> Dataset:
    """Cut examples into a training and a test split: those where `test` is true."""
    whose = (None, None) if owners is None else (owners[~test], owners[test])
    return Dataset(name, x[~test], y[~test], x[test], y[test], classes, *whose)


def every_nth(step: int, groups: Ints) -> Bools:
    """True at every step-th example of each group, in the order they come in."""
    order = np.argsort(groups, kind="stable")
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return rank % step == step - 1


def standardised(dataset: Dataset) -> Dataset:
    """Mean 0 and deviation 1 in the training split, also of numbers to predict; in place, as both are new."""
    if dataset.classes is None:
        centre, spread = (of(dataset.y_train, axis=0, dtype=np.float64) for of in (np.mean, np.std))
        spread = np.where(spread > 0, spread, 1)
        for y in (dataset.y_train, dataset.y_test):
            y[...] = (y - centre) / spread
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


def examples(field: str, values: ArrayLike) -> Inputs:
    """Examples as float32; or as int64 if they are integers, which are tokens, unless uint8, which are pixels."""
    array = np.asarray(values)
    x: NDArray[Any]
    if array.dtype.kind in "iu" and array.dtype != np.uint8:
        x = np.ascontiguousarray(integers(field, array))
    else:
        with np.errstate(over="ignore"):  # values too large become infinite and are rejected below
            x = np.ascontiguousarray(numbers(field, array, np.float32))
    if x.ndim not in (2, 4) or x.size == 0:
        allowed = "(n, features) or (n, channels, height, width), none of them 0"
        raise ValueError(f"{field}: shape {x.shape} is not allowed; allowed: {allowed}")
    with np.errstate(invalid="ignore"):
        if not np.isfinite(x.sum(dtype=np.float64)):  # all of it is finite if and only if its sum is
            wrong = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
            first = f"first {field}[{wrong.argmax()}]"
            some = f"{wrong.sum()} of {len(x)} examples have nan, or more than float32 holds, {first}"
            raise ValueError(
                f"{field}: not all finite: {some}; allowed: finite numbers; replace those, or leave them out"
            )
    return x


def same_examples(x_train: Inputs, x_test: Inputs) -> None:
    """Raise ValueError for splits whose examples differ in their shape, or in whether they are integers."""
    shaped("x_test", x_test, (len(x_test), *x_train.shape[1:]))
    if x_train.dtype != x_test.dtype:
        kinds = f"{x_train.dtype} and {x_test.dtype}"
        raise ValueError(f"x_train, x_test: {kinds} are not allowed; allowed: integers in both or in none")


def client_ids(field: str, values: ArrayLike, n: int | None) -> Ids:
    """Whose each of n examples is: integers or text."""
    array = np.asarray(values)
    ids: NDArray[Any] = as_text(array) if array.dtype.kind in "US" else integers(field, array)
    return ids if n is None else one_each(field, ids, n)


def same_kind(owners_train: Ids, owners_test: Ids) -> None:
    """Raise ValueError for ids that are text in one split and integers in the other."""
    if owners_train.dtype.kind != owners_test.dtype.kind:
        raise ValueError("owners_train, owners_test: text in one, integers in the other; allowed: the same in both")


def one_each(field: str, array: NDArray[Any], n: int) -> NDArray[Any]:
    """The array, if it has one value for each of n examples."""
    if array.shape == (n, 1):
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: ({n},); .ravel() makes it so")
    if array.shape != (n,):
        _, divided, split = field.partition("_")
        each = f"one value for each example of x{divided}{split}"
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: ({n},), {each}")
    return array


def class_each(field: str, y: NDArray[Any], n: int) -> NDArray[Any]:
    """The classes, if there is one for each of n examples, or one for each of its positions."""
    numbers = y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf"
    if numbers and ((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all():
        raise ValueError(f"{field}: is one-hot; allowed: the class of each example, {field}.argmax(axis=1)")
    return y if y.ndim == 2 and len(y) == n and y.shape[1] > 1 else one_each(field, y, n)


def incomplete_clients(owners_train: Ids, owners_test: Ids) -> str:
    """Which clients are in one split only, and what to do, in words; "" if none is.

    >>> incomplete_clients(np.array([1, 2, 2]), np.array([2, 1, 3]))
    'owners: 1 of 3 clients is in one split only: 3; allowed: everyone in both, or drop_incomplete = true, which
    leaves such clients out'
    """
    train, test = np.unique(owners_train), np.unique(owners_test)
    alone, all_of_them = np.setxor1d(train, test), len(np.union1d(train, test))
    if not len(alone):
        return ""
    are, more = "is" if len(alone) == 1 else "are", ", ..." if len(alone) > 3 else ""
    named = ", ".join(map(repr, alone[:3].tolist())) + more
    what = f"owners: {len(alone)} of {all_of_them} clients {are} in one split only: {named}; allowed: everyone in both"
    if len(alone) == all_of_them:
        return f"{what}, since each is trained and tested: divide the examples of each client"
    return f"{what}, or drop_incomplete = true, which leaves such clients out"


def as_text(array: NDArray[Any]) -> NDArray[np.str_]:
    """Text as str; bytes are read as UTF-8."""
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


def target_numbers(field: str, values: ArrayLike, n: int) -> NDArray[np.float32]:
    """What regression is to predict: a finite number for each of n examples, or a row of them."""
    with np.errstate(over="ignore"):
        y: NDArray[np.float32] = np.array(numbers(field, values, np.float32), order="C")  # may be standardised
    if y.ndim != 2 or len(y) != n or y.shape[1] == 0:
        one_each(field, y, n)
    wrong = ~np.isfinite(y.reshape(n, -1)).all(axis=1)
    if wrong.any():
        first = f"first {field}[{wrong.argmax()}]"
        raise ValueError(f"{field}: {wrong.sum()} of {n} are not finite, {first}; allowed: finite numbers")
    return y


def _targets(field: str, values: ArrayLike, n: int, classes: int | None) -> Targets:
    if classes is None:
        return target_numbers(field, values, n)
    try:
        y = integers(field, values)
    except ValueError as error:
        raise ValueError(f"{error}; numbers to predict are for classes=None and task = 'regression'") from None
    y = class_each(field, y, n)
    wrong = np.unique(y[(y < 0) | (y >= classes)])
    if len(wrong):
        raise ValueError(f"{field}: {wrong[:5].tolist()} are not allowed; allowed: 0 to {classes - 1}")
    return y
