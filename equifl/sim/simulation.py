"""`simulate`: from a configuration to results; an interrupted experiment is resumed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from equifl._numerics.checks import known
from equifl.experiment.callbacks import Callback
from equifl.experiment.checkpoint import rounds_in
from equifl.experiment.config import OLD_ENGINES, Config
from equifl.experiment.records import as_json
from equifl.experiment.results import Records, Results
from equifl.experiment.run_folder import CONFIG, FORMAT, ROUNDS, DamageError, RunFolder
from equifl.experiment.selector_tables import selector_table
from equifl.experiment.sweep import points
from equifl.selectors import Selector
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.download import Progress
from equifl.sim.engines.choose import CHOICES
from equifl.sim.loop.environment import data_options, resolved
from equifl.sim.players import LocalPlayer, Player, State

log = logging.getLogger("equifl")

MakePlayer: TypeAlias = Callable[..., Player]  # (config, dataset, *, device, engine)


def simulate(
    config: Config | None = None,
    *,
    dataset: Dataset | None = None,
    out: Path | str | None = None,
    device: str = "auto",
    data_dir: Path | None = None,
    callbacks: Sequence[Callback] = (),
    downloads: Progress | None = None,
    player: MakePlayer = LocalPlayer,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    **settings: Any,
) -> Results:
    """Run every selector with every seed, and return the results.

    With `out`, every round is recorded in that folder, and the same call resumes an interrupted experiment; of a
    finished one it returns the results at once.

    Args:
        config: the experiment; None = the digits, six selectors, five seeds.
        dataset: the data, if you have them; else the data set in the configuration is loaded.
        out: the run folder; None = in memory only.
        device: auto, cpu or cuda.
        data_dir: where files of data sets are looked for first.
        callbacks: called at the start, after every round, and at the end.
        downloads: called with the progress of downloads.
        player: what makes the player: `LocalPlayer`, or for a cluster `functools.partial(Sweep, address=...)`.
        sweep: values by dotted key, such as `{"train.lr": [0.01, 0.02], "selectors.subtrunc.lam": [0, 0.5]}`: all
            combinations are run, and are rows of one table.
        settings: keys of the configuration file, over those of `config`. Short forms: selectors as objects, `seeds=5`
            for the seeds 0 to 4, `data="mnist"`, `model="mlp"` for `train={"model": "mlp"}`.

    >>> from equifl import Rota, Uniform
    >>> chosen = {"uniform": Uniform(), "rota": Rota()}
    >>> results = simulate(selectors=chosen, model="logistic", rounds=2, clients=10, seeds=1, evaluate_every=1)
    >>> results.rounds_played, list(results.table().cells)
    (2, ['uniform', 'rota'])
    """
    config = _configured(config, settings, dataset)
    if sweep:
        from equifl.sim.sweeps import simulate_points  # which calls us for each of them

        options: dict[str, Any] = {"dataset": dataset, "device": device, "data_dir": data_dir, "player": player}
        options |= {"callbacks": callbacks, "downloads": downloads}
        return simulate_points(points(config.overridden, sweep), out=out, **options)
    known("engine", [config.engine], CHOICES)
    path = None if out is None else Path(out)
    done = None if path is None else finished_results(path, config)
    if done is not None:
        log.info("%s: finished already; to run it again, choose another folder", path)
        return done
    if dataset is None:
        dataset = load_data(config, data_dir, downloads)
    config = resolved(config, dataset)
    # Before the folder is made, so that an invalid experiment leaves none.
    playing = player(
        config, dataset, device=device, engine=config.engine if path is None else engine_for(path, config)
    )
    try:
        if path is None:
            played = _play(config, playing, None, callbacks)
            results = Results(config.as_dict(), playing.made_with, played)
        else:
            with RunFolder.open(path, config.as_dict(), playing.made_with) as folder:
                played = _play(config, playing, folder, callbacks, *last_state(folder, config))
                results = Results(folder.config, folder.made_with, played, path)
    finally:
        playing.close()
    for callback in callbacks:
        callback.on_end(results)
    return results


def load_data(config: Config, data_dir: Path | None, progress: Progress | None = None) -> Dataset:
    """The data set that a configuration asks for."""
    return load(config.data.name, data_dir=data_dir, progress=progress, **data_options(config))


def _configured(config: Config | None, settings: Mapping[str, Any], dataset: Dataset | None) -> Config:
    """The configuration with settings put over it, section by section."""
    given = dict(settings)
    if isinstance(given.get("seeds"), int) and not isinstance(given["seeds"], bool):
        given["seeds"] = list(range(given["seeds"]))
    if isinstance(given.get("data"), str):
        given["data"] = {"name": given["data"]}
    if "model" in given:
        given["train"] = {**given.get("train", {}), "model": given.pop("model")}
    if isinstance(given.get("selectors"), Mapping):
        chosen = given["selectors"].items()
        given["selectors"] = {key: selector_table(one) if isinstance(one, Selector) else one for key, one in chosen}
    if dataset is not None and config is None and "data" not in given:
        given["data"] = {"name": dataset.name}
        if dataset.owners_train is not None:
            given["data"]["partition"] = {"kind": "natural"}
    if not given:
        return config or Config()
    table = (config or Config()).as_dict() if config is not None or "data" not in given else {}
    for key in ("train", "server", "availability"):
        if key in given and key in table:
            replaced = {"steps", "epochs"} if {"steps", "epochs"} & given[key].keys() else set()
            given[key] = {k: v for k, v in table[key].items() if k not in replaced} | given[key]
    return Config.from_table(table | given)


def _play(
    config: Config,
    player: Player,
    folder: RunFolder | None,
    callbacks: Sequence[Callback],
    checkpoint: State | None = None,
    played: int = 0,
    recorded: Records | None = None,
) -> Records:
    """Run the rounds after the first `played`, and return all records; `recorded` are those that the folder keeps.

    They are appended after every round; a checkpoint is written every few seconds. A finished experiment has none.
    """
    recorded = [] if recorded is None else recorded
    runs = len(config.selectors) * len(config.seeds)
    every = recorded[: played * runs]
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
            _save_if_possible(folder, due)
    if folder is not None and played < config.rounds:
        folder.save_checkpoint(player.state())
    elif folder is not None:
        folder.finish()
    return every


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


def _save_if_possible(folder: RunFolder, state: State) -> None:
    """Replace the checkpoint; if that fails, warn: the records and the old checkpoint are still there."""
    try:
        folder.save_checkpoint(state)
    except OSError as error:
        log.warning("%s; the run goes on and tries again later", error)


def last_state(folder: RunFolder, config: Config) -> tuple[State | None, int, Records]:
    """The checkpoint to resume from, the rounds played by then, and the records that the folder keeps.

    With a checkpoint these are the records before it; later ones, damaged or not, are computed again to the same
    bytes. Without one all rounds are played again, and the records that are there must come out the same. Where every
    record is there, all rounds are played, and the checkpoint does not matter. Nothing is changed here.
    """
    records, damage = folder.readable()
    if _complete(records, damage, config):
        return None, config.rounds, records
    checkpoint, where = folder.load_checkpoint(), folder.path / ROUNDS
    runs = len(config.selectors) * len(config.seeds)
    if checkpoint is None:
        if damage is not None and not damage.at_end:
            raise damage
        if damage is not None:
            log.warning("%s, and so is all that follows; it is made again", damage.found)
        if records:
            log.info("%s: no checkpoint; the %d records there are made again and compared", where, len(records))
        return None, 0, records
    try:
        played = rounds_in(checkpoint, config.rounds)
    except ValueError as error:
        raise folder.unusable(error) from None
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
        if not _complete(records, damage, config):
            return None
        if damage is not None:
            log.warning("%s; it is after the last record, and removed", damage.found)
        try:
            folder.keep_first(len(records))
            folder.finish()  # a run that was killed as it ended may have left its checkpoint
        except OSError as error:
            log.warning("%s", error)
        return Results(folder.config, folder.made_with, records, path)


def _complete(records: Records, damage: DamageError | None, config: Config) -> bool:
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
