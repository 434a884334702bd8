"""A run folder that grows: what it lacks is played in parts, as runs of their own within it, and then joined to it.

Until all parts are finished the folder stays what it was. Each part is an ordinary run folder, so that a growth which
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from equifl.experiment.atomic_write import TEMPORARY, sync_folder
from equifl.experiment.checkpoint import rounds_in
from equifl.experiment.config import Config
from equifl.experiment.growth import Part, described, missing, with_more_rounds
from equifl.experiment.records import record_keys
from equifl.experiment.results import Records, Results, join
from equifl.experiment.run_folder import FILES, SERVER_MEMORY, RunFolder
from equifl.experiment.swap import GROWING, new_files, swap
from equifl.sim.loop.parts import joined
from equifl.sim.players import KEPT_BYTES, State
from equifl.sim.playing import complete, last_state

log = logging.getLogger("equifl")

PlayFolder: TypeAlias = Callable[[Config, Path], Results]  # an ordinary run, begun or not


def grown(path: Path, asked: Config, play: PlayFolder) -> Results:
    """The results of an experiment of which the folder holds less, after playing what is missing.

    Stopped before the end it returns what was played, and the folder stays what it was.

    Args:
        path: the folder.
        asked: the experiment.
        play: plays one part in a folder.
    """
    with RunFolder.open(path, RunFolder(path).config, {}) as folder:
        stored = asked.from_table(folder.config)
        records, damage = folder.readable()
        finished = complete(records, damage, stored)
        parts = missing(folder.config, asked, finished=finished)
        log.info("%s: %s", path, described(folder.config, asked))
        found: list[tuple[Config, Results]] = []
        if not any(part.begun for part in parts):
            found.append((stored, Results(folder.config, folder.made_with, records, path)))
        for part in parts:
            place = path / GROWING / _name(part.config)
            if part.begun and not place.exists():
                _begin(folder, stored, part, place)
            results = play(part.config, place)
            found.append((part.config, results))
            if not results.finished:
                return join([one for _, one in found])
        return _joined(folder, asked, found)


def _name(config: Config) -> str:
    return hashlib.sha256(json.dumps(config.as_dict()).encode()).hexdigest()[:12]


def _begin(folder: RunFolder, stored: Config, part: Part, place: Path) -> None:
    """Make the folder of a part whose first rounds are played: their records, and the checkpoint if there is one."""
    checkpoint, played, records = last_state(folder, stored)
    if checkpoint is None and played:  # all rounds are there
        checkpoint = folder.load_checkpoint()
        if checkpoint is not None:
            records = records[: rounds_in(checkpoint, stored.rounds) * len(stored.selectors) * len(stored.seeds)]
    if (folder.path / SERVER_MEMORY).exists():  # and the checkpoint is nothing without it
        checkpoint = None
    if checkpoint is None and records:
        log.info("%s: kept no checkpoint, so all rounds are played again and compared", folder.path)
    making = place.with_name(place.name + TEMPORARY)
    if making.exists():
        shutil.rmtree(making)
    making.parent.mkdir(exist_ok=True)
    if part.config.rounds > stored.rounds:
        records = with_more_rounds(records, part.config)
    with RunFolder.open(making, part.config.as_dict(), folder.made_with) as copy:
        copy.append(records)
        if checkpoint is not None:
            copy.save_checkpoint(checkpoint)
    making.rename(place)
    sync_folder(place.parent)


def _joined(folder: RunFolder, asked: Config, found: Sequence[tuple[Config, Results]]) -> Results:
    """Put the records and checkpoints of all parts in the place of the folder's."""
    rows = {(row["round"], row["selector"], row["seed"]): row for _, part in found for row in part.records}
    records: Records = [rows[key] for key in record_keys(asked.as_dict())]
    place = new_files(folder.path)
    with RunFolder.open(place, asked.as_dict(), folder.made_with) as new:
        new.append(records)
        checkpoint = _checkpoint(folder, asked, found)
        if checkpoint is not None:
            new.save_checkpoint(checkpoint)
        new.finish(keep=checkpoint is not None)
    swap(folder.path, FILES)
    return Results(RunFolder(folder.path).config, folder.made_with, records, folder.path)


def _checkpoint(folder: RunFolder, asked: Config, found: Sequence[tuple[Config, Results]]) -> State | None:
    """The checkpoints of all parts as one; None if a part kept none, or an earlier one, or they are too large."""
    states: list[State] = []
    for _, part in found:
        state = None if part.folder is None else RunFolder(part.folder).load_checkpoint()
        if state is None or rounds_in(state, asked.rounds) != asked.rounds:
            return None
        states.append(state)
    if sum(array.nbytes for state in states for array in state.values()) > KEPT_BYTES:
        return None
    return joined(states, asked, [config for config, _ in found])
