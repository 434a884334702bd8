"""Players: execute the runs of an experiment, in this process or elsewhere, as on a cluster."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch

from equifl import __version__
from equifl._numerics.checks import known
from equifl.experiment.config import Config
from equifl.experiment.results import Records
from equifl.experiment.run_folder import RunFolder
from equifl.experiment.task_table import TaskFunction
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.choose import ENGINES
from equifl.sim.loop.federation import Federation
from equifl.sim.models.zoo import MakeModule

CHECKPOINT_SECONDS = 20.0  # between two checkpoints; as many for each second that one took, if that was over a second
KEPT_BYTES = 2**26  # of a checkpoint that a finished run keeps, to go on with more rounds
GIT_SECONDS = 5.0  # time limit for git to report the commit

State: TypeAlias = Mapping[str, NDArray[Any]]


class Player(Protocol):
    """Executes all runs of a configuration, round by round.

    Attributes:
        device: where they are computed.
        made_with: versions, commit and machine, for the record.
        note: on the choice of the engine, or "".
        ahead: rounds started and not returned yet.
    """

    device: str
    made_with: dict[str, Any]
    note: str
    ahead: int

    def begin(self, folder: RunFolder | None, checkpoint: State | None, records: Records) -> None:
        """Continue from a checkpoint and the records up to it, or start; `folder` is where records are written."""
        ...

    def play(self, *, more: bool) -> tuple[Records, State | None]:
        """The records of the next round, and a checkpoint after it if one is due; `more`: others may be begun."""
        ...

    def state(self, most: int | None = None) -> State | None:
        """A checkpoint after the last round returned; None if it has more than `most` bytes."""
        ...

    def saved(self) -> None:
        """The last checkpoint that it gave is on the disk."""
        ...

    def close(self) -> None:
        """Free its resources."""
        ...


class LocalPlayer:
    """All runs of a configuration in this process."""

    ahead = 0

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        *,
        device: str,
        engine: str,
        model: MakeModule | None = None,
        functions: Mapping[str, TaskFunction] | None = None,
    ) -> None:
        self.device = choose_device(device)
        objects: Any = {"model": model, "functions": functions}
        self._federation = Federation(config, dataset, device=self.device, engine=engine, **objects)
        self.made_with = made_with(self.device, self._federation.engine.name)
        self.note = self._federation.note
        self._keeps, self._saved = False, time.monotonic()
        self._given, self._took = (
            0.0,
            0.0,
        )  # when the last checkpoint was returned, and what making and writing it took

    def begin(self, folder: RunFolder | None, checkpoint: State | None, records: Records) -> None:
        if folder is not None and checkpoint is not None:
            try:
                self._federation.server.open(folder.path, resumed=True)
                self._federation.load_state(checkpoint, cohorts_of(records))
            except ValueError as error:
                raise folder.unusable(error) from None
        else:
            self._federation.server.open(None if folder is None else folder.path, resumed=False)
        # On a GPU no round comes out the same twice, so the first has a checkpoint at once.
        self._keeps, self._saved = folder is not None, time.monotonic() if self.device == "cpu" else -np.inf

    def play(self, *, more: bool) -> tuple[Records, State | None]:
        if self._given:  # and meanwhile it was written
            self._took, self._saved, self._given = time.monotonic() - self._given, time.monotonic(), 0.0
        records = self._federation.play()
        now, wait = time.monotonic(), CHECKPOINT_SECONDS * max(1.0, self._took)
        if not self._keeps or now - self._saved <= wait:
            return records, None
        self._given = now
        return records, self._federation.state()

    def saved(self) -> None:
        self._federation.server.saved()

    def state(self, most: int | None = None) -> State | None:
        return state_of(self._federation, most)

    def close(self) -> None:
        """See `Player.close`."""


def state_of(federation: Federation, most: int | None) -> dict[str, NDArray[Any]] | None:
    """A checkpoint; None if it has more than `most` bytes, which is mostly known before it is made."""
    if most is not None and federation.memory.nbytes > most:
        return None
    state = federation.state()
    return None if most is not None and sum(array.nbytes for array in state.values()) > most else state


def choose_device(device: str) -> str:
    """The device; "auto" is the GPU if there is one."""
    known("device", [device], ("auto", "cpu", "cuda"))
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' is not allowed; allowed: auto or cpu, because PyTorch finds no GPU here")
    return device


def cohorts_of(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Ints]]:
    """The cohorts of each selector and seed, in the order of rounds."""
    found: dict[tuple[str, int], list[Ints]] = {}
    for record in records:
        found.setdefault((record["selector"], record["seed"]), []).append(np.array(record["cohort"], np.int64))
    return found


def made_with(device: str, engine: str) -> dict[str, Any]:
    """Versions, commit, engine and device, which are needed to reproduce the numbers."""
    versions = {"equifl": __version__, "numpy": np.__version__, "torch": str(torch.__version__)}
    versions |= {package: metadata.version(package) for package in ENGINES[engine].packages}
    commit, dirty = revision(Path(__file__).parents[1])
    return {
        "versions": versions | {"python": platform.python_version()},
        "commit": commit,
        "dirty": dirty,
        "engine": engine,
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
    }


def revision(package: Path) -> tuple[str | None, bool | None]:
    """The commit that a package's files are of, and whether they were changed since; None if git has no answer.

    Changes elsewhere in the repository do not count, and a package that is installed inside somebody else's
    repository has no commit.
    """

    def git(*arguments: str) -> str | None:
        command = ["git", "--no-optional-locks", "-C", str(package), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    changes = git("status", "--porcelain", "--", ".")
    return git("rev-parse", "--verify", "--quiet", "HEAD"), None if changes is None else bool(changes)
