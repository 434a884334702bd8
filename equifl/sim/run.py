"""From a configuration to a run folder: goes on where it stopped, whatever stopped it."""

from __future__ import annotations

import logging
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch

from equifl import __version__
from equifl.experiment.config import Config
from equifl.experiment.run_folder import CONFIG, ROUNDS, RunFolder
from equifl.signals import Ints
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.download import Progress
from equifl.sim.loop.environment import data_options
from equifl.sim.loop.federation import Federation

CHECKPOINT_SECONDS = 20.0
GIT_SECONDS = 5.0  # what git may take to say which version this is; on a slow disk nobody waits longer

Rows = list[dict[str, Any]]
OnRound = Callable[[int, Rows], bool]  # rounds played, their records -> whether to go on

log = logging.getLogger("equifl")


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
    checkpoint is dropped when the run goes on, and played again to the same bytes. A finished run has no checkpoint.
    """
    rounds = federation.config.rounds
    checkpoint, played, rows = last_state(folder, federation.config)
    if checkpoint is not None:
        federation.load_state(checkpoint, cohorts_of(rows))
    if played:
        on_round(played, rows)
    saved = time.monotonic()
    while played < rounds:
        records = federation.play()
        folder.append(records)
        played += 1
        go_on = on_round(played, records)
        if played < rounds and not go_on:
            folder.save_checkpoint(federation.state())
            return False
        if played < rounds and time.monotonic() - saved > CHECKPOINT_SECONDS:
            save_if_possible(folder, federation.state())
            saved = time.monotonic()
    folder.finish()
    return True


def last_state(folder: RunFolder, config: Config) -> tuple[dict[str, NDArray[Any]] | None, int, Rows]:
    """The checkpoint to go on from, if any, how many rounds are played, and their records.

    Later records are dropped. If earlier ones are missing, that is an error and nothing is changed. Where every
    record is there, all rounds are played, and the checkpoint does not matter.
    """
    rows, expected = folder.rows(), _keys(config)
    if is_complete(rows, config):
        return None, config.rounds, rows
    checkpoint = folder.load_checkpoint()
    played = 0 if checkpoint is None else int(checkpoint["rounds_played"])
    least = played * len(config.selectors) * len(config.seeds)
    where, advice = folder.path / ROUNDS, "put the whole file back, or start in another folder"
    if len(rows) < least:
        raise ValueError(f"{where}: {len(rows)} records where the checkpoint has {least}; {advice}")
    for line, (row, key) in enumerate(zip_longest(rows, expected[: len(rows)]), 1):
        if _key(row) != key:
            told = "round {}, {}, seed {}".format
            meant = told(*key) if key else "the end of the file"
            raise ValueError(f"{where}, line {line}: is of {told(*_key(row))}; expected: {meant}; {advice}")
    if rows and checkpoint is None:
        log.info("%s: no checkpoint yet; the rounds in %s are played again", folder.path, ROUNDS)
    if len(rows) > least:
        folder.keep_before(played)
    return checkpoint, played, rows[:least]


def finished_rows(path: Path, config: Config) -> Rows | None:
    """The records of the run in a folder if it is finished; None if there is something left to play."""
    if not (path / CONFIG).is_file():
        return None
    if config.clients is None:  # the data were counted when it began
        config = replace(config, clients=RunFolder(path).config.get("clients"))
    with RunFolder.open(path, config.as_dict(), {}) as folder:
        rows = folder.rows()
        if not is_complete(rows, config):
            return None
        try:
            folder.finish()  # a run that was killed as it ended may have left its checkpoint
        except OSError as error:
            log.warning("%s", error)
        return rows


def is_complete(rows: Rows, config: Config) -> bool:
    """Whether every round of every selector and seed is recorded, once."""
    return sorted(map(_key, rows)) == sorted(_keys(config))


def save_if_possible(folder: RunFolder, state: Mapping[str, NDArray[Any]]) -> None:
    """Replace the checkpoint; if the disk refuses, warn: the run needs its records, and the old one is still there."""
    try:
        folder.save_checkpoint(state)
    except OSError as error:
        log.warning("%s; the run goes on and tries again later", error)


def _keys(config: Config) -> list[tuple[int, str, int]]:
    """Round, selector and seed of every record of a run, in their order."""
    return [(r, name, seed) for r in range(config.rounds) for name in config.selectors for seed in config.seeds]


def _key(row: Mapping[str, Any]) -> tuple[int, str, int]:
    return row["round"], row["selector"], row["seed"]


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
    begun = str(RunFolder(folder).made_with.get("engine", "general"))
    if begun == "hybrid":
        raise ValueError(
            f"{folder}: was begun with the hybrid engine, which is no more; run it again in another folder, with the "
            "general engine"
        )
    return begun


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
