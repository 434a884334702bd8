"""The run folder: a configuration, its rounds and the last checkpoint, written and read back.

Longer than 300 lines because writing, locking and reading back must agree on every file of the folder.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import integer, require
from equifl.experiment.atomic_write import TEMPORARY, naming, replacing
from equifl.experiment.atomic_write import sync_folder as _sync_folder
from equifl.experiment.checkpoint import read_checkpoint, require_plain, write_checkpoint
from equifl.experiment.config import OLD_ENGINES, separate_partition
from equifl.extras import needed_by

if TYPE_CHECKING:
    from filelock import BaseFileLock

CONFIG, ROUNDS, CHECKPOINT = "config.json", "rounds.jsonl", "checkpoint.npz"
_LOCK = ".lock"


class FolderBusyError(ValueError):
    """Another process writes the folder."""


class RunFolder:
    """One run on the disk: `config.json`, `rounds.jsonl` (a row a round and run) and, to go on, `checkpoint.npz`.

    `RunFolder(path)` reads a run, also one that is going on. `RunFolder.open` starts or continues one and is the
    only writer until it is closed. A killed run leaves at worst half a row, which nobody gets to see.

    >>> import tempfile
    >>> parent = tempfile.TemporaryDirectory()
    >>> path = Path(parent.name) / "run"
    >>> with RunFolder.open(path, {"rounds": 2, "train": {"lr": 0.1}}, {"equifl": "0.1.0"}) as folder:
    ...     folder.append([{"round": 0, "selector": "rota", "seed": 0, "accuracy": 0.5}])
    >>> RunFolder(path).rows()
    [{'round': 0, 'selector': 'rota', 'seed': 0, 'accuracy': 0.5}]
    >>> parent.cleanup()
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._rounds = self.path / ROUNDS
        self._checkpoint = self.path / CHECKPOINT
        self._lock: BaseFileLock | None = None
        self._config, self._made_with = _stored(self.path / CONFIG)

    @classmethod
    def open(cls, path: Path | str, config: Mapping[str, Any], made_with: Mapping[str, Any]) -> RunFolder:
        """Create the folder, or continue the run in it if that has the same configuration.

        Args:
            path: the folder; it may be missing or empty.
            config: the whole configuration. The order of its keys counts: runs and rows are in that order.
            made_with: versions and the like; kept from the first time, and not compared.
        """
        path = Path(path)
        text = _json({"config": config, "made_with": made_with}, indent=2) + "\n"
        _require_free_or_ours(path)
        path.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
        try:
            if not (path / CONFIG).exists():
                with replacing(path / CONFIG) as file:
                    file.write(text.encode())
            folder = cls(path)
            _require_same(path, folder.config, json.loads(text)["config"])
            folder._tidy()
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
        lines = [_line(row) for row in rows]
        size = self._rounds.stat().st_size if self._rounds.exists() else 0
        with naming(self._rounds):
            try:
                with self._rounds.open("ab") as file:
                    file.write("".join(lines).encode())
            except OSError:  # a disk that is nearly full takes some of the rows
                with suppress(OSError):
                    os.truncate(self._rounds, size)
                raise

    def rows(self) -> list[dict[str, Any]]:
        """All rows in the order of writing, without a last one that is only half there."""
        return [row for _, row in self._lines()]

    def keep_before(self, round: int) -> None:
        """Forget this round and all later ones: where a run goes on from a checkpoint, they are made again."""
        self._require_writer()
        first = integer("round", round, least=0)
        kept = [line for line, row in self._lines() if row["round"] < first]
        with replacing(self._rounds) as file:
            file.writelines(kept)

    def save_checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the checkpoint by these arrays; if that fails, the old one is still there."""
        self._require_writer()
        require_plain(arrays)
        self._sync_rows()  # first: a checkpoint is never ahead of the rows on the disk
        write_checkpoint(self._checkpoint, arrays)

    def load_checkpoint(self) -> dict[str, NDArray[Any]] | None:
        """The arrays last saved; None if there are none."""
        return read_checkpoint(self._checkpoint)

    def finish(self) -> None:
        """Remove the checkpoint of a run whose rows are complete, once these are safe on the disk."""
        self._require_writer()
        self._sync_rows()
        with naming(self.path):
            _sync_folder(self.path)
        with naming(self._checkpoint, "removed"):
            self._checkpoint.unlink(missing_ok=True)

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

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Each whole line and what it says."""
        if not self._rounds.exists():
            return
        with self._rounds.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield line, _parsed(line, f"{self._rounds}, line {number}", round=int, selector=str, seed=int)

    def _tidy(self) -> None:
        """Remove what a killed run may have left: temporary files, and half a row that the next would be glued to."""
        for name in (CONFIG, ROUNDS, CHECKPOINT):
            (self.path / (name + TEMPORARY)).unlink(missing_ok=True)
        if self._rounds.exists():
            with self._rounds.open("r+b") as file:
                whole = sum(len(line) for line in file if line.endswith(b"\n"))
                if whole < file.tell():
                    file.truncate(whole)


def _stored(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: is no run folder (it has no {path.name})")
    stored = _parsed(path.read_bytes(), str(path), config=dict, made_with=dict)
    separate_partition(stored["config"].get("data"), stored=True)  # as earlier versions stored it
    if "engine" in stored["config"]:
        stored["config"]["engine"] = OLD_ENGINES.get(stored["config"]["engine"], stored["config"]["engine"])
    return stored["config"], stored["made_with"]


def _parsed(text: bytes, where: str, **wanted: type) -> dict[str, Any]:
    """A JSON object with at least these keys, of these types."""
    try:
        value = json.loads(text)
        for key, kind in wanted.items():
            if not isinstance(value, dict) or not isinstance(value.get(key), kind):
                raise ValueError(f"no `{key}`")
    except ValueError as error:
        raise ValueError(f"{where}: is damaged ({error}); repair it, or choose another folder") from None
    return value


def _require_free_or_ours(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is no folder; choose another name")
    found = {entry.name for entry in path.iterdir()} if path.exists() else set()
    # A run killed as it began leaves its lock, and perhaps half a configuration.
    if CONFIG not in found and not found <= {_LOCK, CONFIG + TEMPORARY}:
        raise ValueError(f"{path}: is not empty and no run folder (it has no {CONFIG}); choose another folder")


def _require_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    found = _differences(dict(_leaves(there)), dict(_leaves(here)))
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ValueError(
            f"{path}: holds a run with another configuration ({'; '.join(found[:3])}{more}); choose another folder"
        )


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    def shown(leaves: Mapping[str, Any], name: str) -> str:
        return json.dumps(leaves[name]) if name in leaves else "missing"

    # None equals a missing key: an older version may not have had it.
    differ = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if not differ:
        orders = ([name for name in leaves if leaves[name] is not None] for leaves in (there, here))
        return [f"order: {old} there, {new} here" for old, new in zip(*orders, strict=True) if old != new][:1]
    return [f"{name}: {shown(there, name)} there, {shown(here, name)} here" for name in differ]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The single values within a value, each with its dotted name."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value:
        for index, part in enumerate(value):
            yield from _leaves(part, f"{name}[{index}]")
    else:
        yield name, value


def _line(row: Mapping[str, Any]) -> str:
    integer("round", row.get("round"), least=0)
    integer("seed", row.get("seed"), least=0)
    require("selector", row.get("selector"), isinstance(row.get("selector"), str), "a name")
    return _json(row, where=f" in round {row['round']}, {row['selector']}, seed {row['seed']}") + "\n"


def _json(value: Mapping[str, Any], *, indent: int | None = None, where: str = "") -> str:
    try:
        return json.dumps(value, allow_nan=False, default=_plain, indent=indent)
    except (TypeError, ValueError) as error:
        wrong = [f"{name}{where}: {leaf!r} is not allowed" for name, leaf in _leaves(value) if not _writable(leaf)]
        allowed = "text, integers, finite numbers, None, and lists and mappings of these"
        raise ValueError(f"{wrong[0] if wrong else f'{error}{where}'}; allowed: {allowed}") from None


def _plain(value: Any) -> Any:
    """A value of numpy, or a mapping, as plain JSON types."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _writable(leaf: Any) -> bool:
    if isinstance(leaf, float):
        return math.isfinite(leaf)
    return leaf is None or isinstance(leaf, str | int | list | tuple | Mapping)


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
