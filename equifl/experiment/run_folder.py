"""The run folder: a configuration, its rounds and the last checkpoint, written and read back.

Longer than 300 lines because writing, locking and reading back must agree on every file of the folder.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import integer
from equifl.experiment.atomic_write import TEMPORARY, naming, replacing
from equifl.experiment.atomic_write import sync_folder as _sync_folder
from equifl.experiment.checkpoint import read_checkpoint, require_plain, write_checkpoint
from equifl.experiment.records import (
    as_json,
    check_stored,
    leaves,
    read_record,
    record_keys,
    record_line,
    sealed,
    unsealed,
)
from equifl.experiment.swap import current, settle
from equifl.extras import needed_by

if TYPE_CHECKING:
    from filelock import BaseFileLock

CONFIG, ROUNDS, CHECKPOINT = FILES = "config.json", "rounds.jsonl", "checkpoint.npz"
SWEEP = "sweep.json"  # in the folder of a sweep: the folders of its experiments
SERVER_MEMORY = "server_memory.npy"  # what a checkpoint is not to hold of the server rule's memory
FORMAT = 2  # since when every row has a checksum
_LOCK = ".lock"
_OF_CONFIG = "config.crc"  # the array of a checkpoint that says to which folder it belongs


class FolderBusyError(ValueError):
    """Another process writes the folder."""


class DamageError(ValueError):
    """A row is not as it was written, or not the one that has to be there.

    Attributes:
        found: the file, the line and what is wrong with it.
        at_end: whether no intact row comes after it, as where a disk lost the end of a file.
    """

    def __init__(self, found: str, *, at_end: bool) -> None:
        super().__init__(f"{found}; put the whole file back, or start in another folder")
        self.found, self.at_end = found, at_end


class RunFolder:
    """One run on the disk: `config.json`, `rounds.jsonl` (a row a round and run) and, to go on, `checkpoint.npz`.

    While it grows, the folder `growing` within it holds the runs that it lacks.

    `RunFolder(path)` reads a run, also one that is going on. `RunFolder.open` starts or continues one and is the
    only writer until it is closed; it changes nothing that is there before the first write. A killed run leaves at
    worst half a row, which nobody gets to see. Each row ends with a checksum, which readers check and leave out.

    >>> import tempfile
    >>> parent = tempfile.TemporaryDirectory()
    >>> path = Path(parent.name) / "run"
    >>> config = {"rounds": 2, "clients": 9, "seeds": [0], "selectors": {"rota": {}}, "data": {"name": "mine"}}
    >>> row = {"round": 0, "selector": "rota", "seed": 0, "cohort": [3], "local_loss": 0.5}
    >>> with RunFolder.open(path, config, {"equifl": "0.1.0"}) as folder:
    ...     folder.append([{**row, "bytes_down": 8, "bytes_up": 8}])
    >>> RunFolder(path).rows()[0]["cohort"]
    [3]
    >>> parent.cleanup()
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: BaseFileLock | None = None
        self._read_config()

    def _read_config(self) -> None:
        place = current(self.path)
        self._rounds, self._checkpoint = place / ROUNDS, place / CHECKPOINT
        stored, self._crc = _stored(place / CONFIG)
        if self._rounds.is_dir():
            advice = "put the file back, or choose another folder"
            raise ValueError(f"{self._rounds}: is a folder, expected the file of records; {advice}")
        self._config: dict[str, Any] = stored["config"]
        self._made_with: dict[str, Any] = stored["made_with"]
        self.format: int = stored.get("format", 1)

    @classmethod
    def open(cls, path: Path | str, config: Mapping[str, Any], made_with: Mapping[str, Any]) -> RunFolder:
        """Create the folder, or continue the run in it if that has the same configuration.

        Args:
            path: the folder; it may be missing or empty.
            config: the whole configuration. The order of its keys counts: runs and rows are in that order.
            made_with: versions and the like; kept from the first time, and not compared.
        """
        path = Path(path)
        text = as_json({"config": config, "made_with": made_with, "format": FORMAT}, indent=2)
        _require_free_or_ours(path)
        if not path.exists():
            path.mkdir(parents=True)
            _sync_folder(path.parent)
        lock = _locked(path)
        try:
            settle(path, FILES)
            if not (path / CONFIG).exists():
                with replacing(path / CONFIG) as file:
                    file.write(sealed(text))
            folder = cls(path)
            require_same(path, folder.config, json.loads(text)["config"])
        except BaseException:
            lock.release()
            raise
        folder._lock = lock
        return folder

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as JSON gives it back: tuples are lists."""
        return self._config

    @property
    def made_with(self) -> dict[str, Any]:
        """What the run was started with: versions, commit, machine."""
        return self._made_with

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, all or none: each has at least `round`, `selector` and `seed`; numpy values are welcome.

        Numbers are written by `repr`, so the same numbers give the same bytes. nan and inf are refused by name.
        """
        self._require_writer()
        lines = b"".join(record_line(row) for row in rows)
        new = not self._rounds.exists()
        with naming(self._rounds):
            size = 0 if new else self._whole_size()
            try:
                with self._rounds.open("ab") as file:
                    file.write(lines)
            except OSError:  # a disk that is nearly full takes some of the rows
                with suppress(OSError):
                    os.truncate(self._rounds, size)
                raise
            if new:
                _sync_folder(self.path)

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """All rows, or the first `most`, in the order of writing, without a last one that is only half there.

        Raises:
            DamageError: one of them is not as it was written, or not the one that has to be there.
        """
        rows, damage = self.readable(most)
        if damage is not None:
            raise damage
        return rows

    def readable(self, most: int | None = None) -> tuple[list[dict[str, Any]], DamageError | None]:
        """The rows before the first damaged one, and what is wrong with that; None if all are as they have to be."""
        rows: list[dict[str, Any]] = []
        if not self._rounds.exists():
            return rows, None
        keys, required = record_keys(self._config), self.format >= FORMAT
        with self._rounds.open("rb") as file:
            for number, line in enumerate(islice(file, most), 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    rows.append(read_record(line, next(keys, None), self._config, required=required))
                except ValueError as error:
                    if self._replaced():  # the folder has grown since its configuration was read
                        self._read_config()
                        return self.readable(most)
                    at_end = not any(_intact(rest, required=required) for rest in (line, *file))
                    return rows, DamageError(f"{self._rounds}, line {number}: {error}", at_end=at_end)
        return rows, None

    def _replaced(self) -> bool:
        return self._lock is None and zlib.crc32((current(self.path) / CONFIG).read_bytes()) != self._crc

    def keep_first(self, rows: int) -> None:
        """Forget all rows after so many: where a run goes on from a checkpoint, they are made again."""
        self._require_writer()
        integer("rows", rows, least=0)
        if not self._rounds.exists():
            return
        with self._rounds.open("rb") as file:
            kept = list(islice(file, rows))
            more = bool(file.read(1))
        if more:
            with replacing(self._rounds) as file:
                file.writelines(kept)

    def save_checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the checkpoint by these arrays; if that fails, the old one is still there."""
        self._require_writer()
        require_plain(arrays)
        self._sync_rows()  # first: a checkpoint is never ahead of the rows on the disk
        write_checkpoint(self._checkpoint, {**arrays, _OF_CONFIG: np.array(self._crc)})

    def load_checkpoint(self) -> dict[str, NDArray[Any]] | None:
        """The arrays last saved; None if there are none."""
        arrays = read_checkpoint(self._checkpoint)
        if arrays is None:
            return None
        crc = arrays.pop(_OF_CONFIG, None)
        if (self.format >= FORMAT or crc is not None) and (crc is None or crc.tolist() != self._crc):
            raise self.unusable("it is of another run")
        return arrays

    def unusable(self, reason: object) -> ValueError:
        """What to say of a checkpoint that is not this run's, or not whole."""
        advice = "put this run's own back, or delete it to run again from the first round"
        return ValueError(f"{self._checkpoint}: cannot be used ({reason}); {advice}")

    def finish(self, *, keep: bool = False) -> None:
        """Put the rows of a complete run safely on the disk; remove any rest, and the checkpoint unless `keep`."""
        self._require_writer()
        self._sync_rows()
        with naming(self.path):
            _sync_folder(self.path)
        if not keep:
            with naming(self._checkpoint, "removed"):
                self._checkpoint.unlink(missing_ok=True)
            (self.path / SERVER_MEMORY).unlink(missing_ok=True)
        for name in (*FILES, SERVER_MEMORY):  # that a killed run was about to replace
            (self.path / (name + TEMPORARY)).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock; reading still works."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_writer(self) -> None:
        if self._lock is None:
            raise ValueError(f"{self.path}: is open for reading only; RunFolder.open opens it for writing")

    def _sync_rows(self) -> None:
        if self._rounds.exists():
            with naming(self._rounds), self._rounds.open("ab") as file:
                os.fsync(file.fileno())

    def _whole_size(self) -> int:
        """The size of all rows; half a row that a killed run left is cut off, or the next would be glued to it."""
        with self._rounds.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                size = sum(len(line) for line in file if line.endswith(b"\n"))
                file.truncate(size)
        return size


def _stored(path: Path) -> tuple[dict[str, Any], int]:
    """What a configuration file says, and its CRC-32."""
    if not path.is_file():
        raise ValueError(f"{path.parent}: is no run folder (it has no {path.name})")
    text = path.read_bytes()
    try:
        stored = unsealed(text, required=False)
        if isinstance(stored, dict) and "format" in stored:
            unsealed(text, required=True)
        check_stored(stored, FORMAT)
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error}); repair it, or choose another folder") from None
    return stored, zlib.crc32(text)


def _intact(line: bytes, *, required: bool) -> bool:
    """Whether a line is as some record was written."""
    try:
        return isinstance(unsealed(line, required=required), dict)
    except ValueError:
        return False


def _require_free_or_ours(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is no folder; choose another name")
    found = {entry.name for entry in path.iterdir()} if path.exists() else set()
    # A run killed as it began leaves its lock, and perhaps half a configuration.
    if SWEEP in found:
        raise ValueError(f"{path}: holds a sweep; go on with the same sweep, or choose another folder")
    if CONFIG not in found and not found <= {_LOCK, CONFIG + TEMPORARY}:
        raise ValueError(f"{path}: is not empty and no run folder (it has no {CONFIG}); choose another folder")


def require_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise ValueError, with the first keys in which they differ, unless two configurations are the same."""
    found = _differences(there, here)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ValueError(
            f"{path}: holds a run with another configuration ({'; '.join(found[:3])}{more}); choose another folder"
        )


def _differences(there_table: Mapping[str, Any], here_table: Mapping[str, Any]) -> list[str]:
    there, here = dict(leaves(there_table)), dict(leaves(here_table))

    def shown(leaves: Mapping[str, Any], name: str) -> str:
        return json.dumps(leaves[name]) if name in leaves else "missing"

    # None equals a missing key: an older version may not have had it.
    differ = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if not differ:
        orders = ([name for name in leaves if leaves[name] is not None] for leaves in (there, here))
        return [f"order: {old} there, {new} here" for old, new in zip(*orders, strict=True) if old != new][:1]
    return [f"{name}: {shown(there, name)} there, {shown(here, name)} here" for name in differ]


def _locked(path: Path) -> BaseFileLock:
    """The folder's lock, held until it is released, or the process that holds it is gone."""
    with needed_by("a run folder"):
        from filelock import FileLock, Timeout  # a tenth of a second, and reading needs no lock

    (path / _LOCK).open("ab").close()  # a folder that cannot be written is refused as such
    lock = FileLock(path / _LOCK, thread_local=False, fallback_to_soft=False)  # a soft one outlives a killed process
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise FolderBusyError(
            f"{path}: is being written by another process; wait for it, or choose another folder"
        ) from None
    except OSError as error:  # some network disks have no locks
        warnings.warn(f"{path}: cannot be locked ({error}); make sure that only one process writes it", stacklevel=3)
    return lock
