"""Sketches in a file: as many as the disk holds, in memory only while they are looked at.

Beside it, in `path` + ".checks", are the seed and a checksum a row. A row that does not match its checksum is torn:
its writer was killed, the power failed, or the disk erred. It is unknown once the file is opened again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from equifl._numerics.checks import require
from equifl._numerics.checksums import checksums
from equifl._numerics.mapped import Mapped
from equifl._numerics.threads import on_all_cores, tiles
from equifl.signals import Bools, Floats, Ints
from equifl.sketch import CountSketch

_WRITTEN_BYTES = 2**24  # at a time
_START = 128  # of the checksums in their file; before them is a line of JSON
_EARLIER = ".json"  # where an earlier version, which had no checksums, kept the seed
PATIENCE = 0.5  # seconds to wait for a row that another process is writing, which takes less than a millisecond


@dataclass(frozen=True)
class SketchFile:
    """Sketches in a file: read them there, and write them by `write`, which keeps their checksums.

    Attributes:
        path: an ordinary .npy file, which `np.load(path, mmap_mode="r")` opens.
        rows: (clients, length) what is in it; a row of nan is unknown.
        checks: (clients,) the checksum of each row.
    """

    path: Path
    rows: Mapped
    checks: Mapped

    def write(self, ids: Ints, sketches: Floats) -> None:
        """Replace the sketches of these clients; a kill meanwhile makes up to a mebibyte of them unknown."""
        rows, checks = self.rows.view(np.ndarray), self.checks.view(np.ndarray)
        for tile in tiles(range(len(ids)), self._row_bytes):
            news = np.ascontiguousarray(sketches[tile], rows.dtype)
            sums = checksums(news)  # beforehand: rows do not match only while these two lines run
            rows[ids[tile]] = news
            checks[ids[tile]] = sums

    def torn(self, ids: Ints, copy: Floats | None = None) -> Ints:
        """Where in `ids` rows are torn and stay so; the others are in `copy` then, as they were found whole."""
        left, end = np.arange(len(ids)), time.monotonic() + PATIENCE
        while len(left := left[self._mismatched(ids, left, copy)]) and time.monotonic() < end:
            time.sleep(0.001)
        return left

    def grow(self, clients: int) -> SketchFile:
        """The same file with more clients, the new ones unknown; what was opened before stays valid."""
        _lengthen_checks(self.path, clients)
        with self.path.open("r+b") as file:
            (old, length), dtype = _header(self.path, file)
            header, start = _header_bytes((clients, length), dtype), file.tell()
            if len(header) != start:
                raise ValueError(f"memory_map: {self.path} has no room in its header; allowed: files made here")
            end = start + old * length * dtype.itemsize
            file.truncate(end)  # an interrupted growth may have left something behind it
            file.seek(end)
            try:
                _write_nan(file, clients - old, length, dtype)
                _sync(file)
            except OSError as error:
                file.truncate(end)
                raise _no_room(self.path, (clients - old) * length * dtype.itemsize, error) from None
            file.seek(0)
            file.write(header)  # only now do they belong to it
        return _mapped(self.path, "r+")

    def flush(self) -> None:
        """Write everything to the disk, which the system otherwise does within a minute or so."""
        self.rows.flush()
        self.checks.flush()

    @property
    def _row_bytes(self) -> int:
        return self.rows.itemsize * self.rows.shape[1]

    def _mismatched(self, ids: Ints, places: Ints, copy: Floats | None) -> Bools:
        rows, checks = self.rows.view(np.ndarray), self.checks.view(np.ndarray)
        wrong = np.empty(len(places), bool)

        def work(part: range) -> None:
            for tile in tiles(part, self._row_bytes):
                some = places[tile]
                found = rows[ids[some]]  # what is compared must not change meanwhile
                wrong[tile] = checksums(found) != checks[ids[some]]
                if copy is not None:
                    copy[some] = found

        on_all_cores(work, len(places), self._row_bytes)
        return wrong


def open_sketches(path: Path, clients: int, sketch: CountSketch, dtype: type = np.float32) -> SketchFile:
    """The sketches in the file, to be read and written there; made if there is none, all unknown.

    Its disk space is taken when it is made, so that no later write can find the disk full. If several processes make
    it at once, all of them open the same. Torn rows become unknown, with a warning that says how many.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sketches.npy"
    >>> open_sketches(path, 3, CountSketch(length=4)).write(np.array([1]), np.array([[1, 2, 3, 4]]))
    >>> np.load(path)[:2].tolist()
    [[nan, nan, nan, nan], [1.0, 2.0, 3.0, 4.0]]
    """
    require("memory_map", str(path), path.parent.is_dir() and not path.is_dir(), "a file in a folder that is there")
    if not path.exists():
        _make(path, clients, sketch, np.dtype(dtype))
    with path.open("rb") as file:
        _require_same(path, file, clients, sketch, dtype)
    if not _beside(path).exists():
        _adopt(path, sketch.seed)
        warnings.warn(f"memory_map: {path} is of an earlier version; its sketches are taken unchecked", stacklevel=3)
    _lengthen_checks(path, clients)
    sketches = _mapped(path, "r+")
    if len(torn := sketches.torn(np.arange(clients))):
        sketches.write(torn, np.broadcast_to(np.float32(np.nan), (len(torn), sketch.length)))
        warnings.warn(
            f"memory_map: {len(torn):,} of {clients:,} sketches in {path} do not match their checksums, as after a "
            "crash; these clients count as unknown until they report again",
            stacklevel=3,
        )
    return sketches


def read_sketches(path: Path, ids: Ints) -> Floats:
    """(len(ids), length) a copy of these sketches, each whole, while another process may write the file.

    A row that is being written is read again, for up to half a second. If it is torn even then, it is nan.
    """
    sketches = _mapped(path, "r")
    found = np.empty((len(ids), sketches.rows.shape[1]), sketches.rows.dtype)
    found[sketches.torn(ids, found)] = np.nan
    return found


def _make(path: Path, clients: int, sketch: CountSketch, dtype: np.dtype[Any]) -> None:
    if _beside(path).exists() and (seed := _seed(path)) != sketch.seed:
        raise ValueError(
            f"memory_map: {path} is missing, and {_beside(path)} is of seed {seed}; delete it for seed {sketch.seed}"
        )
    try:
        with _new(path) as file:
            file.write(_header_bytes((clients, sketch.length), dtype))
            _write_nan(file, clients, sketch.length, dtype)
            _make_checks(path, sketch.seed, np.zeros(clients, np.uint64))  # there before the rows are
    except OSError as error:
        raise _no_room(path, clients * sketch.length * dtype.itemsize, error) from None
    for other in path.parent.iterdir():  # of processes that were killed, or are late
        if re.fullmatch(re.escape(path.name) + r"(\.checks)?\.[0-9a-f]{32}\.unfinished", other.name):
            with suppress(OSError):
                other.unlink()


def _make_checks(path: Path, seed: int, checks: NDArray[np.uint64]) -> None:
    with _new(_beside(path)) as file:
        file.write(json.dumps({"seed": seed}).ljust(_START - 1).encode() + b"\n")
        file.write(checks.data)


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole and on the disk, unless another process was first."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        with unfinished.open("xb") as file:
            yield file
            _sync(file)
        try:
            os.link(unfinished, path)
        except OSError:
            if not path.exists():  # a file system without links
                unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _adopt(path: Path, seed: int) -> None:
    """Give a file that has none the checksums of its rows, except of those that are not finite."""
    rows = np.load(path, mmap_mode="r").view(np.ndarray)
    checks = np.zeros(len(rows), np.uint64)
    for tile in tiles(range(len(rows)), rows.itemsize * rows.shape[1]):
        finite = np.isfinite(rows[tile].sum(axis=1, dtype=np.float64))
        checks[tile] = np.where(finite, checksums(rows[tile]), 0)
    _make_checks(path, seed, checks)
    _beside(path, _EARLIER).unlink(missing_ok=True)  # an earlier version would write rows and not their checksums


def _lengthen_checks(path: Path, clients: int) -> None:
    """Checksums for this many clients; new ones are 0, as of a row of nan."""
    missing = _START + 8 * clients - _beside(path).stat().st_size
    if missing > 0:
        try:
            with _beside(path).open("ab") as file:  # at its end, even if another process does the same
                file.write(bytes(missing))
        except OSError as error:
            raise _no_room(path, missing, error) from None


def _mapped(path: Path, mode: Literal["r", "r+"]) -> SketchFile:
    with path.open("rb") as file:
        shape, dtype = _header(path, file)
        rows: Mapped = np.memmap(path, dtype, mode, file.tell(), shape)
    return SketchFile(path, rows, np.memmap(_beside(path), np.uint64, mode, _START, shape[:1]))


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


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _header(path: Path, file: BinaryIO) -> tuple[tuple[int, int], np.dtype[np.generic]]:
    """Shape and type of what is in the file, which is left where the numbers begin."""
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("another version of .npy")
        shape, by_columns, dtype = npy.read_array_header_1_0(file)
        if len(shape) != 2 or by_columns or file.tell() % 64:
            raise ValueError(f"an array of shape {shape} from byte {file.tell()}")
    except Exception as error:  # numpy may raise anything when a header is damaged
        raise ValueError(f"memory_map: {path} is no file of sketches ({error})") from None
    return shape, dtype


def _require_same(path: Path, file: BinaryIO, clients: int, sketch: CountSketch, dtype: type) -> None:
    """Raise ValueError for a file of other sketches, with the difference."""
    (rows, length), kind = _header(path, file)
    found = {"length": length, "seed": _seed(path), "dtype": str(kind), "clients": rows}
    wanted = {"length": sketch.length, "seed": sketch.seed, "dtype": np.dtype(dtype).name, "clients": clients}
    for name, value in wanted.items():
        if found[name] != value:
            raise ValueError(f"memory_map: {path} has sketches of {name} {found[name]}; allowed: {name} {value}")
    if path.stat().st_size < file.tell() + rows * length * kind.itemsize:
        raise ValueError(f"memory_map: {path} is cut off; allowed: all of its {rows} sketches")


def _seed(path: Path) -> Any:
    """Of the sketches, as it is written beside them."""
    source, earlier = _beside(path), _beside(path, _EARLIER)
    if earlier.exists() and not source.exists():
        source = earlier
    try:
        with source.open("rb") as file:
            return json.loads(file.read(_START))["seed"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"memory_map: {source}, which says the seed of {path}, cannot be read; put it back, or delete both: "
            "their clients then count as unknown until they report again"
        ) from None


def _beside(path: Path, ending: str = ".checks") -> Path:
    return path.with_name(path.name + ending)


def _no_room(path: Path, needed: int, error: OSError) -> OSError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    full = f"memory_map: the disk has no room for {needed / 2**20:,.0f} MiB of sketches"
    return OSError(error.errno, full, str(path))
