"""From a configuration to a run folder: goes on where it stopped, whatever stopped it."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equifl import __version__
from equifl.config import Config
from equifl.records import CONFIG, RunFolder
from equifl.signals import Ints
from equifl.sim.data import Dataset, load
from equifl.sim.download import Progress
from equifl.sim.federation import Federation
from equifl.sim.world import data_options

CHECKPOINT_SECONDS = 20.0
GIT_SECONDS = 5.0  # what git may take to say which version this is; on a slow disk nobody waits longer

OnRound = Callable[[int, list[dict[str, Any]]], bool]  # rounds played, their records -> whether to go on


def choose_device(device: str) -> str:
    """The device meant: auto is the GPU if there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' is not allowed; allowed: auto or cpu, because PyTorch finds no GPU here")
    return device


def load_data(config: Config, data_dir: Path | None, progress: Progress | None = None) -> Dataset:
    """The data set that a configuration asks for."""
    return load(config.data.name, data_dir=data_dir, progress=progress, **data_options(config))


class Here:
    """All lanes of a configuration in this process; `equifl.cluster.sweep.Sweep` is the same on a cluster."""

    def __init__(self, config: Config, dataset: Dataset, *, device: str, engine: str) -> None:
        self.device = choose_device(device)
        self._federation = Federation(config, dataset, device=self.device, engine=engine)
        self.made_with = made_with(self.device, self._federation.engine.name)
        self.note = note(self._federation)

    def run(self, folder: RunFolder, *, on_round: OnRound) -> bool:
        """Play what is left of a run; whether it is finished."""
        return run(self._federation, folder, on_round=on_round)


def run(federation: Federation, folder: RunFolder, *, on_round: OnRound) -> bool:
    """Play what is left of a run; whether it is finished.

    Records are appended after every round, a checkpoint is written now and then. What was recorded after the last
    checkpoint is dropped when the run goes on, and played again to the same bytes.
    """
    config = federation.config
    checkpoint = folder.load_checkpoint()
    played = int(checkpoint["rounds_played"]) if checkpoint is not None else 0
    rows = rows_before(folder, played, len(federation.lanes))
    if checkpoint is not None:
        federation.load_state(checkpoint, cohorts_of(rows))
        on_round(played, rows)
    saved = time.monotonic()
    while federation.rounds_played < config.rounds:
        records = federation.play()
        folder.append(records)
        go_on = on_round(federation.rounds_played, records)
        finished = federation.rounds_played == config.rounds
        if finished or not go_on or time.monotonic() - saved > CHECKPOINT_SECONDS:
            folder.save_checkpoint(federation.state())
            saved = time.monotonic()
        if not go_on:
            break
    return federation.rounds_played == config.rounds


def rows_before(folder: RunFolder, played: int, lanes: int) -> list[dict[str, Any]]:
    """The records of the rounds that a checkpoint has played; later ones are dropped, missing ones refused."""
    folder.keep_before(played)
    rows = folder.rows()
    if len(rows) != played * lanes:
        where, advice = folder.path / "rounds.jsonl", "put the whole file back, or start in another folder"
        raise ValueError(f"{where}: {len(rows)} records where the checkpoint has {played * lanes}; {advice}")
    return rows


def cohorts_of(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, int], list[Ints]]:
    """The cohorts of each selector and seed, in the order of rounds."""
    found: dict[tuple[str, int], list[Ints]] = {}
    for row in rows:
        found.setdefault((row["selector"], row["seed"]), []).append(np.array(row["cohort"], np.int64))
    return found


def engine_for(folder: Path, config: Config) -> str:
    """The engine a run is to have: where the configuration leaves it open, the one with which it was begun."""
    if config.engine != "auto" or not (folder / CONFIG).is_file():
        return config.engine
    return str(RunFolder(folder).made_with.get("engine", "general"))


def note(federation: Federation) -> str:
    """What is worth saying of the engine that runs, if anything."""
    engine = federation.engine
    return f"by the {engine.name} engine: {engine.note}" if engine.note else ""


def made_with(device: str, engine: str) -> dict[str, Any]:
    """What a later reader needs to get the same numbers."""
    versions = {"equifl": __version__, "numpy": np.__version__, "torch": str(torch.__version__)}
    if engine != "general":
        versions["numba"] = metadata.version("numba")
    commit, dirty = revision(Path(__file__).parents[1])
    return {
        "versions": versions | {"python": platform.python_version()},
        "commit": commit,
        "dirty": dirty,
        "engine": engine,
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
    }


def revision(package: Path) -> tuple[str | None, bool | None]:
    """The commit that a package's files are of, and whether they were changed since; None where git does not say.

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
