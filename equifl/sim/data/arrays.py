"""Arrays of examples, labels and client ids: what a data set takes, and an .npz file of one's own read as that."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integers, known, numbers, require, shaped
from equifl.signals import Ints

Inputs: TypeAlias = NDArray[np.float32] | NDArray[np.int64]  # numbers to compute with, or tokens to look up
Ids: TypeAlias = NDArray[np.int64] | NDArray[np.str_]

NEEDED, OWNERS = ("x_train", "y_train", "x_test", "y_test"), ("owners_train", "owners_test")

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """What an .npz file holds, as a `Dataset` takes it.

    Args:
        arrays: by name, without those that cannot be used.
        dtypes: what they are in the file, by name; None for those that cannot be read.
        class_names: the labels, in the order of the classes; numbers if they are numbers in the file.
        faults: all that is wrong with the file, each with what to do; empty if it can be used.
    """

    arrays: dict[str, NDArray[Any]]
    dtypes: dict[str, np.dtype[Any] | None]
    class_names: tuple[str, ...]
    faults: tuple[str, ...]


def read_own(path: str | Path) -> OwnArrays:
    """The arrays of an .npz file with x_train, y_train, x_test, y_test, and owners_train, owners_test if any."""
    file = Path(path)
    there, faults = _read_npz(file)
    found = {name: array for name, array in there.items() if array is not None}

    def tried(check: Callable[..., Found], *arguments: Any) -> Found | None:
        try:
            return check(*arguments)
        except ValueError as error:
            faults.append(str(error))
            return None

    if faults and not there:  # it is no archive
        return OwnArrays({}, {}, (), tuple(faults))
    tried(known, file.name, there, NEEDED + OWNERS)
    missing = [name for name in NEEDED if name not in there]
    if missing:
        has = f"it has {', '.join(there) or 'nothing'}"
        faults.append(f"{file.name}: {', '.join(missing)} missing; allowed: a file with {', '.join(NEEDED)}; {has}")
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
    labels = tried(_class_numbers, found["y_train"], found.get("y_test")) if "y_train" in found else None
    class_names, numbered = labels or ((), [])
    for split, y in zip(("train", "test"), numbered, strict=False):  # there may be no y_test
        if split in lengths:
            arrays[f"y_{split}"] = tried(one_each, f"y_{split}", y, lengths[split])
    usable = {name: array for name, array in arrays.items() if array is not None}
    dtypes = {name: None if array is None else array.dtype for name, array in there.items()}
    return OwnArrays(usable, dtypes, class_names, tuple(faults))


def examples(field: str, values: ArrayLike) -> Inputs:
    """Examples as float32; or as int64 if they are integers, which are tokens, unless uint8, which are pixels."""
    array = np.asarray(values)
    x: NDArray[Any]
    if array.dtype.kind in "iu" and array.dtype != np.uint8:
        x = np.ascontiguousarray(integers(field, array))
    else:
        with np.errstate(over="ignore"):  # what is too large becomes infinite and is refused below
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
    """Refuse splits whose examples differ in their shape, or in whether they are integers."""
    shaped("x_test", x_test, (len(x_test), *x_train.shape[1:]))
    if x_train.dtype != x_test.dtype:
        kinds = f"{x_train.dtype} and {x_test.dtype}"
        raise ValueError(f"x_train, x_test: {kinds} are not allowed; allowed: integers in both or in none")


def client_ids(field: str, values: ArrayLike, n: int | None) -> Ids:
    """Whose each of n examples is: integers or text."""
    array = np.asarray(values)
    ids: NDArray[Any] = _text(array) if array.dtype.kind in "US" else integers(field, array)
    return ids if n is None else one_each(field, ids, n)


def same_kind(owners_train: Ids, owners_test: Ids) -> None:
    """Refuse ids that are text in one split and integers in the other."""
    if owners_train.dtype.kind != owners_test.dtype.kind:
        raise ValueError("owners_train, owners_test: text in one, integers in the other; allowed: the same in both")


def one_each(field: str, array: NDArray[Any], n: int) -> NDArray[Any]:
    """The array, if it has one value for each of n examples."""
    if array.shape == (n, 1):
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: ({n},); .ravel() makes it so")
    if array.shape != (n,):
        split = field.rpartition("_")[2]
        each = f"one value for each example of x_{split}"
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: ({n},), {each}")
    return array


def _class_numbers(y_train: NDArray[Any], y_test: NDArray[Any] | None) -> tuple[tuple[str, ...], list[Ints]]:
    """The labels' names, and the labels as 0 to C-1; text is numbered in its order."""
    parts = [("y_train", y_train)] + ([("y_test", y_test)] if y_test is not None else [])
    if y_train.dtype.kind in "US":
        for field, y in parts:
            require(field, str(y.dtype), y.dtype.kind in "US", "text, as y_train is")
        texts = [_text(y) for _, y in parts]
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
        raise ValueError(f"{error} or text, the class of each example{how}") from None


def _text(array: NDArray[Any]) -> NDArray[np.str_]:
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


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
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        why = "" if "pickle" in str(error) else f" ({error})"  # numpy takes all else for a pickle
        return {}, [f"path: {str(path)!r} is not an .npz file of numbers{why}; np.savez writes one"]
    return arrays, faults
