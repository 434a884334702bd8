"""A user's own arrays, from Python or an .npz file, as a data set; or all faults of such a file."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import integers, known, plain, require
from equifl.signals import Ints
from equifl.sim.data.dataset import (
    Dataset,
    as_text,
    class_each,
    client_ids,
    every_nth,
    examples,
    one_each,
    same_examples,
    same_kind,
    standardised,
    target_numbers,
)

NEEDED, OWNERS = ("x_train", "y_train", "x_test", "y_test"), ("owners_train", "owners_test")

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """What an .npz file holds, as a `Dataset` takes it.

    Args:
        arrays: by name, without those that cannot be used.
        dtypes: what they are in the file, by name; None for those that cannot be read.
        class_names: the labels, in the order of the classes; numbers if they are numbers in the file; none for
            regression.
        faults: all that is wrong with the file, each with what to do; empty if it can be used.
    """

    arrays: dict[str, NDArray[Any]]
    dtypes: dict[str, np.dtype[Any] | None]
    class_names: tuple[str, ...]
    faults: tuple[str, ...]


def load_own_arrays(
    *, path: str | Path | None = None, standardise: bool | None = None, regression: bool = False
) -> Dataset:
    """One's own, from an .npz file with x_train, y_train, x_test, y_test, and owners_train, owners_test if any.

    With `regression` the targets are numbers, which `standardise` takes along.
    """
    require("path", path, isinstance(path, str | Path) and is_file(path), "the path of an .npz file")
    require("standardise", standardise, standardise is None or isinstance(standardise, bool), "True or False")
    return _dataset(Path(str(path)).stem, read_own(str(path), regression=regression), standardise, regression)


def dataset_of(arrays: Sequence[Any], standardise: bool | None = None, *, regression: bool = False) -> Dataset:
    """Arrays as a data set, held to the checks of an .npz file: the examples, their classes, and whose they are.

    Args:
        arrays: (x, y), (x, y, owners), (x_train, y_train, x_test, y_test), or these with owners_train and owners_test.
            Where no test split is given, every fifth example of each owner is for testing, or of each class if there
            are no owners; of an owner with two to four examples the last.
        standardise: mean 0 and deviation 1 in the training split; None = unless the examples are integers.
        regression: whether y are numbers to predict, which are standardised, too.

    >>> x, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    >>> mine = dataset_of((x, y))
    >>> len(mine.y_train), len(mine.y_test)
    (8, 2)
    """
    forms = "(x, y), (x, y, owners), (x_train, y_train, x_test, y_test), or these and owners_train, owners_test"
    if len(arrays) not in (2, 3, 4, 6):
        raise ValueError(f"data: {len(arrays)} arrays are not allowed; allowed: {forms}")
    divided = len(arrays) >= 4
    names = NEEDED + OWNERS if divided else ("x", "y", "owners")
    try:
        named = {name: _array(name, values) for name, values in zip(names, arrays, strict=False)}
        found = named if divided else _split(named, regression)
        own = _own_arrays(found, [], "data", regression=regression)
        dataset = _dataset("arrays", own, standardise, regression)
    except ValueError as error:
        raise ValueError(f"data: {error if divided else _undivided(str(error))}") from None
    return dataset


def _array(name: str, values: Any) -> NDArray[Any]:
    """A copy, since examples are standardised in place."""
    array = np.array(plain(name, values))
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)  # as pandas keeps text
    if array.dtype.kind == "O":
        raise ValueError(f"{name}: is an array of Python objects; allowed: numbers or text, all rows equally long")
    return array


def _split(named: Mapping[str, NDArray[Any]], regression: bool) -> dict[str, NDArray[Any]]:
    """Both splits of examples that come without a test split."""
    x, groups = named["x"], named["owners" if "owners" in named else "y"]
    require("x", x.shape, x.ndim > 0, "a row an example")
    examples("x", x[:, None] if x.ndim == 3 else x)  # now, since an error names an example by its place
    for name, array in named.items():
        if name == "owners" or (name == "y" and not regression):
            (one_each if name == "owners" else class_each)(name, array, len(x))
    if regression:
        target_numbers("y", named["y"], len(x))
    elif named["y"].dtype.kind == "f":
        _whole("y", named["y"])
    if "owners" not in named and (regression or groups.ndim > 1):
        groups = np.zeros(len(x), np.int64)
    _, numbers = np.unique(groups, return_inverse=True)
    sizes = np.bincount(numbers)[numbers]
    order = np.arange(len(groups))[::-1]  # of two to four examples of an owner the last is for testing
    _, last = np.unique(numbers[order], return_index=True)
    test = every_nth(5, numbers)
    few = np.isin(np.arange(len(groups)), order[last]) & (sizes >= 2) & (sizes < 5)
    test |= few & ("owners" in named)
    if not test.any():
        raise ValueError(f"{'owners' if 'owners' in named else 'y'}: none has two examples, to train on and to test")
    parts = {f"{name}_train": array[~test] for name, array in named.items()}
    return parts | {f"{name}_test": array[test] for name, array in named.items()}


def _undivided(error: str) -> str:
    """An error in the names of examples that came without a test split."""
    return re.sub(r"\b(x|y|owners)_(train|test)\b", r"\1", re.sub(r"\b(\w+)_train(, | and )\1_test\b", r"\1", error))


def _dataset(name: str, own: OwnArrays, standardise: bool | None, regression: bool) -> Dataset:
    if own.faults:
        raise ValueError(own.faults[0])
    dataset = Dataset(name, **own.arrays, classes=None if regression else len(own.class_names))
    if dataset.x_train.dtype.kind == "f":
        return dataset if standardise is False else standardised(dataset)
    why = "False, or leave it out: the examples are integers, which stay as they are; measurements are to be float32"
    require("standardise", standardise, not standardise, why)
    return dataset


def is_file(path: str | Path) -> bool:
    """Whether there is a plain file; a name that is too long is none."""
    try:
        return Path(path).is_file()
    except OSError:
        return False


def read_own(path: str | Path, *, regression: bool = False) -> OwnArrays:
    """The arrays of an .npz file with x_train, y_train, x_test, y_test, and owners_train, owners_test if any."""
    there, faults = _read_npz(Path(path))
    if faults and not there:  # it is no archive
        return OwnArrays({}, {}, (), tuple(faults))
    return _own_arrays(there, faults, Path(path).name, regression=regression)


def _own_arrays(
    there: Mapping[str, NDArray[Any] | None], faults: list[str], where: str, *, regression: bool
) -> OwnArrays:
    """Arrays by name as a `Dataset` takes them, and all that is wrong with them, after `faults`."""
    found = {name: array for name, array in there.items() if array is not None}

    def tried(check: Callable[..., Found], *arguments: Any) -> Found | None:
        try:
            return check(*arguments)
        except ValueError as error:
            faults.append(str(error))
            return None

    tried(known, where, there, NEEDED + OWNERS)
    missing = [name for name in NEEDED if name not in there]
    if missing:
        has = f"it has {', '.join(there) or 'nothing'}"
        faults.append(f"{where}: {', '.join(missing)} missing; allowed: a file with {', '.join(NEEDED)}; {has}")
    if len([name for name in OWNERS if name in there]) == 1:
        faults.append("owners_train, owners_test: only one is there; allowed: both or none")
    arrays: dict[str, NDArray[Any] | None] = {}
    lengths: dict[str, int] = {}
    for split in ("train", "test"):
        x, owners = found.get(f"x_{split}"), found.get(f"owners_{split}")
        if x is not None:
            arrays[f"x_{split}"] = tried(examples, f"x_{split}", x[:, None] if x.ndim == 3 else x)  # of one channel
            lengths[split] = len(x) if x.ndim else 0
        if owners is not None:
            arrays[f"owners_{split}"] = tried(client_ids, f"owners_{split}", owners, lengths.get(split))
    for check, field in ((same_examples, "x"), (same_kind, "owners")):
        pair = [arrays.get(f"{field}_{split}") for split in ("train", "test")]
        if all(array is not None for array in pair):
            tried(check, *pair)
    labels = None
    if "y_train" in found and not regression:
        labels = tried(_class_numbers, found["y_train"], found.get("y_test"))
    class_names, numbered = labels or ((), [])
    for split, y in zip(("train", "test"), numbered, strict=False):  # there may be no y_test
        if split in lengths:
            arrays[f"y_{split}"] = tried(class_each, f"y_{split}", y, lengths[split])
    for split in lengths if regression else ():
        if f"y_{split}" in found:
            arrays[f"y_{split}"] = tried(target_numbers, f"y_{split}", found[f"y_{split}"], lengths[split])
    usable = {name: array for name, array in arrays.items() if array is not None}
    dtypes = {name: None if array is None else array.dtype for name, array in there.items()}
    return OwnArrays(usable, dtypes, class_names, tuple(faults))


def _class_numbers(y_train: NDArray[Any], y_test: NDArray[Any] | None) -> tuple[tuple[str, ...], list[Ints]]:
    """The labels' names, and the labels as 0 to C-1; text is numbered in its order."""
    parts = [("y_train", y_train)] + ([("y_test", y_test)] if y_test is not None else [])
    if y_train.dtype.kind in "US":
        for field, y in parts:
            require(field, str(y.dtype), y.dtype.kind in "US", "text, as y_train is")
        texts = [as_text(y) for _, y in parts]
        names = np.unique(texts[0])
        new = np.setdiff1d(texts[1], names) if len(texts) > 1 else names[:0]
        if len(new):
            raise ValueError(f"y_test: {new[:5].tolist()} are not allowed; allowed: labels that occur in y_train")
        numbered = [np.searchsorted(names, text).astype(np.int64) for text in texts]
    else:
        numbered = [_whole(field, y) for field, y in parts]
        names = np.unique(numbered[0])
        if (names != np.arange(len(names))).any():
            how = "np.unique(y, return_inverse=True)[1] of both splits together numbers them so"
            if (names == np.arange(1, len(names) + 1)).all():
                how = "subtract 1 from y_train and y_test"
            raise ValueError(
                f"y_train: {names[:5].tolist()} are not allowed; allowed: 0 to C-1, all of them in use; {how}"
            )
        wrong = np.setdiff1d(numbered[1], names) if len(numbered) > 1 else names[:0]
        if len(wrong):
            known_labels = f"0 to {len(names) - 1}, as in y_train"
            raise ValueError(f"y_test: {wrong[:5].tolist()} are not allowed; allowed: {known_labels}")
    if len(names) < 2:
        raise ValueError(f"y_train: all labels are {names.tolist()}; allowed: two classes or more")
    return tuple(map(str, names.tolist())), numbered


def _whole(field: str, y: NDArray[Any]) -> Ints:
    try:
        return integers(field, y)
    except ValueError as error:
        how = "; astype(int) makes them so" if y.dtype.kind == "b" else ""
        how = "; numbers to predict are for task = 'regression'" if y.dtype.kind == "f" else how
        raise ValueError(f"{error} or text, the class of each example{how}") from None


def _read_npz(path: Path) -> tuple[dict[str, NDArray[Any] | None], list[str]]:
    """The arrays by name, None for one that cannot be read, and why not; no names if it is no archive."""
    arrays: dict[str, NDArray[Any] | None] = {}
    faults: list[str] = []
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:  # closed even if numpy gives up
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    arrays[name] = None
                    how = "astype(float), astype(int) or astype(str), after making all rows equally long"
                    faults.append(
                        f"{name}: is an array of Python objects; allowed: numbers or text; save it with {how}"
                    )
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        why = "" if "pickle" in str(error) else f" ({error})"  # numpy takes all else for a pickle
        return {}, [f"path: {str(path)!r} is not an .npz file of numbers{why}; np.savez writes one"]
    return arrays, faults
