"""The run folder of a federation: as a simulation writes it, for reports and for resuming."""

from __future__ import annotations

import logging
import math
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl import __version__
from equifl._numerics.checks import integer
from equifl.experiment.checkpoint import rounds_in
from equifl.experiment.run_folder import ROUNDS, FolderBusyError, RunFolder

State = Mapping[str, NDArray[Any]]
_EVERY = "checkpoint_every"  # in a checkpoint: how many rows at most may come after it


class Journal:
    """A row after every round in a folder, and a checkpoint after every `checkpoint_every` of them; or nothing.

    The first round has a checkpoint, too, and with `begin` the time before it. Rounds after the last one are played
    again when the run is resumed.

    To resume, it waits up to `patience` seconds for the folder: a server may hold it for a while after it was stopped.
    `host` is the package that runs the federation, whose version is recorded, and `log` is where that host logs.

    Attributes:
        state: the checkpoint of the run that is resumed, and
        past: the cohorts of its rounds. Whoever has read them sets them to None and to nothing.
    """

    def __init__(
        self,
        path: Path | str | None,
        config: Mapping[str, Any],
        *,
        host: str,
        log: logging.Logger,
        resume: bool,
        patience: float = 0.0,
        checkpoint_every: int = 1,
    ) -> None:
        self._path, self._config, self._host, self._log = path, config, host, log
        self._every = integer("checkpoint_every", checkpoint_every, least=1)
        self._folder: RunFolder | None = None
        self.state: State | None = None
        self.past: list[list[int]] = []
        self._rounds = self._saved = 0  # rows, and those before the last checkpoint
        self._writes = False
        if path is None:
            return
        if resume:
            self._wait(path, patience)
        try:
            self._load(self._open(path), resume)
        except BaseException:
            self.close()
            raise

    def _load(self, folder: RunFolder, resume: bool) -> None:
        """Read the checkpoint and the rows before it; nothing is changed.

        Rows after it, no more than there may be, were written by a process that died: these rounds are repeated.
        """
        self.state = folder.load_checkpoint()
        if self.state is not None and not resume:
            raise ValueError(f"{folder.path}: holds a run; resume=True continues it, or choose another folder")
        rows, damage = folder.readable()
        played, more = 0, 1
        if self.state is not None:
            try:
                played = rounds_in(self.state, None, least=0)
                _check(self.state)
                more = int(self.state.get(_EVERY, 1))
            except (TypeError, ValueError) as error:
                raise folder.unusable(error) from None
        if not played <= len(rows) <= played + more:
            found = f"{folder.path / ROUNDS}: {len(rows)} records where the checkpoint has {played}"
            raise damage or ValueError(f"{found}; put both files back as they were, or start in another folder")
        self.past = [row["cohort"] for row in rows[:played]]
        self._rounds = self._saved = played

    def begin(self, state: Callable[[], State]) -> None:
        """Write a checkpoint before the first round, where it must not be played twice without a trace."""
        if self._path is not None and not self._rounds and self._open(self._path).load_checkpoint() is None:
            self._save(state)

    def write(self, row: Mapping[str, Any], state: Callable[[], State]) -> None:
        """Record a finished round; `state` is asked for where it has a checkpoint."""
        if self._path is None:
            return
        folder = self._open(self._path)
        if not self._writes:
            folder.keep_first(self._rounds)
            self._writes = True
        folder.append([row])
        self._rounds += 1
        if self._rounds == 1 or self._rounds % self._every == 0:
            self.save(state)

    def save(self, state: Callable[[], State]) -> None:
        """Write a checkpoint, unless the last round has one."""
        if self._path is not None and self._rounds > self._saved:
            self._save(state)

    def amend(self, arrays: State) -> None:
        """Replace these arrays in the last checkpoint, where there is one, and leave the others as they are."""
        if self._path is not None:
            folder = self._open(self._path)
            if (saved := folder.load_checkpoint()) is not None:
                folder.save_checkpoint({**saved, **arrays})

    def close(self) -> None:
        """Release the folder's lock, until the next write."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _save(self, state: Callable[[], State]) -> None:
        assert self._path is not None, "there is no folder"
        self._open(self._path).save_checkpoint({**state(), _EVERY: np.array(self._every)})
        self._saved = self._rounds

    def _wait(self, path: Path | str, patience: float) -> None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                self._open(path)
                return
            except FolderBusyError:
                self._log.info("equifl: %s: is being written by another process; waiting for it to end", path)
                time.sleep(1)

    def _open(self, path: Path | str) -> RunFolder:
        if self._folder is None:
            versions = {"equifl": __version__, self._host: version(self._host), "numpy": np.__version__}
            made_with = {"versions": versions | {"python": platform.python_version()}, "device": platform.machine()}
            self._folder = RunFolder.open(path, self._config, made_with)
        return self._folder


def model_to_state(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The global model as plain arrays, in their order."""
    names = np.array(list(arrays), np.str_)
    return {"model": names} | {f"model.{i}": array for i, array in enumerate(arrays.values())}


def model_of_state(state: State) -> dict[str, NDArray[Any]]:
    """The global model that a checkpoint holds."""
    return {str(name): state[f"model.{i}"] for i, name in enumerate(state["model"])}


def unlike(there: Mapping[str, NDArray[Any]], here: Mapping[str, NDArray[Any]]) -> str:
    """In which array, by name or shape, the model of a folder and another one differ; empty if in none."""
    old, new = ({name: array.shape for name, array in arrays.items()} for arrays in (there, here))
    differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not differ:
        return ""
    return f"{differ[0]} is {old.get(differ[0], 'missing')} there and {new.get(differ[0], 'missing')} here"


def _check(state: State) -> None:
    """Raise ValueError unless a checkpoint has what every host reads of it; the host and the store check the rest."""
    for name in ("identities", "model"):
        require_list(state, name, "U")
    missing = [name for i in range(len(state["model"])) if (name := f"model.{i}") not in state]
    if missing:
        raise ValueError(f"checkpoint: has no `{missing[0]}`")


def require_list(state: State, name: str, kind: str) -> None:
    """Raise ValueError unless a checkpoint has a list of this kind, as NumPy names kinds, by this name."""
    if name not in state or state[name].ndim != 1 or state[name].dtype.kind != kind:
        raise ValueError(f"checkpoint: `{name}` is missing, or no list of {'text' if kind == 'U' else 'integers'}")


def options_of(selector: Any, above: tuple[int, ...] = ()) -> Any:
    """A selector's parameters as comparable values: those of a dataclass, else its class and public attributes.

    A function is replaced by its name, and an object within another one by its options if it is a selector or a
    dataclass, else by its class. What is no plain value in a dataclass is replaced by its text, without addresses in
    memory. Of what is in itself (`above` has the ids of what is around it) there is the class alone.
    """
    if id(selector) in above or hasattr(selector, "__qualname__"):
        return qualified_name(selector)
    within = (*above, id(selector))
    if is_dataclass(selector):
        return {field.name: options_of(getattr(selector, field.name), within) for field in fields(selector)}
    if callable(getattr(selector, "select", None)):
        public = {key: value for key, value in getattr(selector, "__dict__", {}).items() if not key.startswith("_")}
        return {"class": qualified_name(type(selector))} | {
            key: plain(one, _part, within) for key, one in public.items()
        }
    if isinstance(selector, int | float | str | set | frozenset | None):
        return plain(selector, _part, above)
    return re.sub(" at 0x[0-9A-Fa-f]+", "", repr(selector))


def _part(value: Any, above: tuple[int, ...]) -> Any:
    """A selector or dataclass within a selector; of any other object the name."""
    if isinstance(value, frozenset):
        return plain(set(value), _part, above)
    has_options = is_dataclass(value) or callable(getattr(value, "select", None))
    return options_of(value, above) if has_options else qualified_name(value)


def plain(value: Any, other: Callable[[Any, tuple[int, ...]], Any], above: tuple[int, ...] = ()) -> Any:
    """A value as JSON has it, alike in every process: sets are sorted, numbers that are not finite are text.

    What is no plain value is what `other` makes of it, given the ids of what it is in; what is in itself is its name.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Path | Enum):
        return str(value)
    if id(value) in above:
        return qualified_name(value)
    within = (*above, id(value))
    if isinstance(value, dict):
        return {str(key): plain(each, other, within) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        # In lists of a configuration there is no None.
        parts = ["None" if each is None else plain(each, other, within) for each in value]
        return sorted(parts, key=repr) if isinstance(value, set) else parts
    return other(value, above)


def qualified_name(value: Any) -> str:
    """Where a class or function is from, or the class of any other object."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
