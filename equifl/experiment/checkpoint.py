"""A checkpoint: plain arrays in one file, replaced as a whole."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import require
from equifl.experiment.atomic_write import replacing

Layout: TypeAlias = Mapping[str, tuple[Any, tuple[int, ...]]]  # the type and shape of every array


def require_plain(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of Python objects, which no file holds."""
    for name, array in arrays.items():
        require(name, np.asarray(array).dtype, not np.asarray(array).dtype.hasobject, "arrays of plain numbers")


def require_layout(arrays: Mapping[str, NDArray[Any]], layout: Layout) -> None:
    """Raise ValueError unless the arrays of a checkpoint are exactly these, each of its type and shape."""
    for name in {**layout, **arrays}:
        if name not in arrays:
            raise ValueError(f"checkpoint: has no `{name}`")
        if name not in layout:
            raise ValueError(f"checkpoint: has `{name}`, which does not belong there")
        (dtype, shape), array = layout[name], arrays[name]
        if array.dtype != dtype or array.shape != shape:
            expected = f"expected {np.dtype(dtype)} of shape {shape}"
            raise ValueError(f"checkpoint: `{name}` is {array.dtype} of shape {array.shape}, {expected}")


def rounds_in(arrays: Mapping[str, NDArray[Any]], most: int | None, *, least: int = 1) -> int:
    """How many rounds were played before a checkpoint, if it says a number that is possible."""
    number = arrays.get("rounds_played")
    require_layout({} if number is None else {"rounds_played": number}, {"rounds_played": (np.int64, ())})
    rounds, allowed = int(arrays["rounds_played"]), f"{least} or more" if most is None else f"{least} to {most}"
    require("checkpoint: rounds_played", rounds, rounds >= least and (most is None or rounds <= most), allowed)
    return rounds


def write_checkpoint(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replace the file by these arrays; if that fails, the old one is still there."""
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():  # np.savez, but for any name
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_checkpoint(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays last written; None if there is no file."""
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged archive fails in many ways, and all mean the same
        raise ValueError(f"{path}: cannot be read ({error}); delete it to run again from the first round") from None
    return arrays
