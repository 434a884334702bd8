"""Sketches in a file: as many as the disk holds, in memory only while they are looked at."""

from __future__ import annotations

import errno
import json
import os
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from equifl.signals import Floats
from equifl.sketch import CountSketch

_WRITTEN_BYTES = 2**24  # at a time


def open_sketches(path: Path, clients: int, sketch: CountSketch, dtype: type = np.float32) -> Floats:
    """(clients, length) the sketches in the file, to be read and written there; made if there is none, all nan.

    It is an ordinary .npy file, which `np.load(path, mmap_mode="r")` opens. What .npy cannot say, the seed, is beside
    it in `path` + ".json". Its disk space is taken when it is made, so that no later write can find the disk full.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sketches.npy"
    >>> open_sketches(path, 3, CountSketch(length=4))[1] = [1, 2, 3, 4]
    >>> np.load(path)[:2].tolist()
    [[nan, nan, nan, nan], [1.0, 2.0, 3.0, 4.0]]
    """
    if not path.exists():
        _make(path, clients, sketch, dtype)
    with path.open("rb") as file:
        _require_same(path, file, clients, sketch, dtype)
    return np.load(path, mmap_mode="r+")


def grow_sketches(path: Path, clients: int) -> Floats:
    """(clients, length) the same file with more clients, the new ones nan; what was opened before stays valid."""
    with path.open("r+b") as file:
        (old, length), dtype = _header(path, file)
        header, start = _header_bytes((clients, length), dtype), file.tell()
        if len(header) != start:
            raise ValueError(f"memory_map: the header of {path} has no room to grow; allowed: files made here")
        end = start + old * length * dtype.itemsize
        file.truncate(end)  # an interrupted growth may have left something behind it
        file.seek(end)
        try:
            _write_nan(file, clients - old, length, dtype)
        except OSError as error:
            file.truncate(end)
            raise _no_room(path, (clients - old) * length * dtype.itemsize, error) from None
        file.seek(0)
        file.write(header)  # only now do they belong to it
    return np.load(path, mmap_mode="r+")


def _make(path: Path, clients: int, sketch: CountSketch, dtype: type) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(_header_bytes((clients, sketch.length), np.dtype(dtype)))
            _write_nan(file, clients, sketch.length, np.dtype(dtype))
        _beside(path).write_text(json.dumps({"length": sketch.length, "seed": sketch.seed}) + "\n")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise _no_room(path, clients * sketch.length * np.dtype(dtype).itemsize, error) from None


def _header_bytes(shape: tuple[int, int], dtype: np.dtype[np.generic]) -> bytes:
    """As long for any number of clients: numpy leaves room for it to grow."""
    buffer = BytesIO()
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _write_nan(file: BinaryIO, rows: int, length: int, dtype: np.dtype[np.generic]) -> None:
    if hasattr(os, "posix_fallocate"):  # says at once whether there is room
        file.flush()
        os.posix_fallocate(file.fileno(), file.tell(), max(1, rows * length * dtype.itemsize))
    step = max(1, _WRITTEN_BYTES // (length * dtype.itemsize))
    nan = np.full((min(step, rows), length), np.nan, dtype)
    for start in range(0, rows, step):
        file.write(nan[: rows - start].data)
    file.flush()


def _header(path: Path, file: BinaryIO) -> tuple[tuple[int, int], np.dtype[np.generic]]:
    """Shape and type of what is in the file, which is left where the numbers begin."""
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("another version of .npy")
        shape, by_columns, dtype = npy.read_array_header_1_0(file)
        if len(shape) != 2 or by_columns:
            raise ValueError(f"an array of shape {shape}")
    except ValueError as error:
        raise ValueError(f"memory_map: {path} is no file of sketches ({error})") from None
    return shape, dtype


def _require_same(path: Path, file: BinaryIO, clients: int, sketch: CountSketch, dtype: type) -> None:
    """Raise ValueError for a file of other sketches, with the difference."""
    (rows, length), kind = _header(path, file)
    try:
        seed = json.loads(_beside(path).read_text())["seed"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"memory_map: {_beside(path)}, which says the seed of {path}, cannot be read") from None
    found = {"length": length, "seed": seed, "dtype": str(kind), "clients": rows}
    wanted = {"length": sketch.length, "seed": sketch.seed, "dtype": np.dtype(dtype).name, "clients": clients}
    for name, value in wanted.items():
        if found[name] != value:
            raise ValueError(f"memory_map: {path} has sketches of {name} {found[name]}; allowed: {name} {value}")
    if path.stat().st_size < file.tell() + rows * length * kind.itemsize:
        raise ValueError(f"memory_map: {path} is cut off; allowed: all of its {rows} sketches")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _no_room(path: Path, needed: int, error: OSError) -> OSError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    return OSError(
        error.errno, f"memory_map: the disk has no room for {needed / 2**20:,.0f} MiB of sketches", str(path)
    )
