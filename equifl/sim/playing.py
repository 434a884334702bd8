"""Playing the rounds of an experiment, from the start or from what a run folder holds of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from equifl.experiment.callbacks import Callback
from equifl.experiment.checkpoint import rounds_in
from equifl.experiment.config import OLD_ENGINES, Config
from equifl.experiment.growth import part_of_records
from equifl.experiment.records import as_json
from equifl.experiment.results import Records, Results
from equifl.experiment.run_folder import CONFIG, FORMAT, ROUNDS, SERVER_MEMORY, DamageError, RunFolder
from equifl.sim.players import KEPT_BYTES, Player, State

log = logging.getLogger("equifl")


def play(
    config: Config,
    player: Player,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
    checkpoint: State | None = None,
    played: int = 0,
    recorded: Records | None = None,
) -> Records:
    """Run the rounds after the first `played`, and return all records; `recorded` are those that the folder keeps.

    They are appended after every round; a checkpoint is written every few seconds. A finished experiment keeps its
    last one, unless that is large: with it, more rounds can be added.
    """
    recorded = [] if recorded is None else recorded
    runs = len(config.selectors) * len(config.seeds)
    begun, every = played, recorded[: played * runs]
    player.begin(folder, checkpoint, every)
    for callback in callbacks:
        callback.on_start(config, player)
    more = not played or _notify(callbacks, played, list(every))
    while played < config.rounds and (more or player.ahead):
        found, due = player.play(more=more)
        if folder is not None:
            _write(folder, found, played * runs, recorded)
        every += found
        played += 1
        more = _notify(callbacks, played, found) and more
        if folder is not None and due is not None and more and played < config.rounds:
            _save_if_possible(folder, due, player)
    if folder is not None and played < config.rounds:
        state = player.state()
        assert state is not None
        folder.save_checkpoint(state)
    elif folder is not None:
        folder.finish(keep=begun == played or _kept(folder, player))
    return every


def _kept(folder: RunFolder, player: Player) -> bool:
    """Whether the checkpoint after the last round is kept: if it is small, all in one file, and the disk takes it."""
    state = None if (folder.path / SERVER_MEMORY).exists() else player.state(most=KEPT_BYTES)
    try:
        if state is not None:
            folder.save_checkpoint(state)
    except OSError as error:
        log.warning("%s; the run is finished without it", error)
        return False
    return state is not None


def _write(folder: RunFolder, found: Records, start: int, recorded: Records) -> None:
    """Append the records of a round after the first `start`; those in the folder already must be the same."""
    there = recorded[start : start + len(found)]
    for line, (record, old) in enumerate(zip(found, there, strict=False), start + 1):
        new = json.loads(as_json(record))
        if {**new, **old} != new:  # a later version may record more
            raise ValueError(
                f"{folder.path / ROUNDS}, line {line}: comes out otherwise when it is played again (damaged, or of "
                f"another machine or version); delete {ROUNDS} to record all rounds anew, or start in another folder"
            )
    if start + len(there) == len(recorded):
        folder.keep_first(len(recorded))  # not before: until now anything might still have been refused
    if len(there) < len(found):
        folder.append(found[len(there) :])


def _notify(callbacks: Sequence[Callback], played: int, records: Records) -> bool:
    """Call `on_round` of all callbacks; whether to continue."""
    answers = [callback.on_round(played, records) for callback in callbacks]
    return all(answer is not False for answer in answers)


def _save_if_possible(folder: RunFolder, state: State, player: Player) -> None:
    """Replace the checkpoint; if that fails, warn: the records and the old checkpoint are still there."""
    try:
        folder.save_checkpoint(state)
    except OSError as error:
        log.warning("%s; the run goes on and tries again later", error)
    else:
        player.saved()


def last_state(folder: RunFolder, config: Config) -> tuple[State | None, int, Records]:
    """The checkpoint to resume from, the rounds played by then, and the records that the folder keeps.

    With a checkpoint these are the records before it; later ones, damaged or not, are computed again to the same
    bytes. Without one all rounds are played again, and the records that are there must come out the same. Where every
    record is there, all rounds are played, and the checkpoint does not matter. Nor does one of the last round where
    records are missing. Nothing is changed here.
    """
    records, damage = folder.readable()
    if complete(records, damage, config):
        return None, config.rounds, records
    checkpoint, where = folder.load_checkpoint(), folder.path / ROUNDS
    runs, played = len(config.selectors) * len(config.seeds), 0
    try:
        played = 0 if checkpoint is None else rounds_in(checkpoint, config.rounds)
    except ValueError as error:
        raise folder.unusable(error) from None
    if checkpoint is None or played == config.rounds:
        if damage is not None and not damage.at_end:
            raise damage
        if damage is not None:
            log.warning("%s, and so is all that follows; it is made again", damage.found)
        if records:
            log.info("%s: no checkpoint; the %d records there are made again and compared", where, len(records))
        return None, 0, records
    if len(records) < played * runs:
        missing = f"{where}: {len(records)} records where the checkpoint has {played * runs}"
        raise damage or ValueError(f"{missing}; put the whole file back, or start in another folder")
    if damage is not None:
        log.warning("%s; it is after the checkpoint: rounds from %d on are played again", damage.found, played)
    if folder.format < FORMAT:  # whose server rules had no memory, and whose distances had another name
        checkpoint.setdefault("server.parts", np.full(runs, -1))
        if "apart" in checkpoint:
            checkpoint["distances"] = checkpoint.pop("apart")
    return checkpoint, played, records[: played * runs]


def finished_results(path: Path, config: Config) -> Results | None:
    """The results in a folder if they are finished; None if rounds are left."""
    if not (path / CONFIG).is_file():
        return None
    if config.clients is None:  # the data were counted when it began
        config = replace(config, clients=RunFolder(path).config["clients"])
    with RunFolder.open(path, config.as_dict(), {}) as folder:
        records, damage = folder.readable()
        if not complete(records, damage, config):
            return None
        if damage is not None:
            log.warning("%s; it is after the last record, and removed", damage.found)
        try:
            folder.keep_first(len(records))
            folder.finish(keep=True)
        except OSError as error:
            log.warning("%s", error)
        return Results(folder.config, folder.made_with, records, path)


def part_of_folder(path: Path, config: Config) -> Results:
    """The results of an experiment of which the folder holds more; its report stays that of the whole."""
    folder = RunFolder(path)
    records = part_of_records(folder.rows(), config, path)
    return Results(json.loads(as_json(config.as_dict())), folder.made_with, records)


def complete(records: Records, damage: DamageError | None, config: Config) -> bool:
    """Whether every round of every selector and seed is recorded, and nothing that can be read follows."""
    every = config.rounds * len(config.selectors) * len(config.seeds)
    return len(records) == every and (damage is None or damage.at_end)


def engine_for(folder: Path, config: Config) -> str:
    """The engine a run is to have: where the configuration leaves it open, the one with which it was begun."""
    if config.engine != "auto" or not (folder / CONFIG).is_file():
        return config.engine
    begun = str(RunFolder(folder).made_with.get("engine", "torch"))
    if begun == "hybrid":
        raise ValueError(
            f"{folder}: was begun with the hybrid engine, which was removed; run it again in another folder, with the "
            "torch engine"
        )
    return OLD_ENGINES.get(begun, begun)
