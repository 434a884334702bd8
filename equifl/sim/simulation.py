"""`simulate`: from a configuration to results; an interrupted experiment is resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from equifl.experiment.callbacks import Callback
from equifl.experiment.config import OLD_ENGINES, Config, selector_table
from equifl.experiment.results import Records, Results
from equifl.experiment.run_folder import CONFIG, ROUNDS, RunFolder
from equifl.selectors import Selector
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.download import Progress
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
        settings: keys of the configuration file, over those of `config`. Short forms: selectors as objects, `seeds=5`
            for the seeds 0 to 4, `data="mnist"`, `model="mlp"` for `train={"model": "mlp"}`.

    >>> from equifl import Rota, Uniform
    >>> chosen = {"uniform": Uniform(), "rota": Rota()}
    >>> results = simulate(selectors=chosen, model="logistic", rounds=2, clients=10, seeds=1, evaluate_every=1)
    >>> results.rounds_played, list(results.table.cells)
    (2, ['uniform', 'rota'])
    """
    config = _configured(config, settings, dataset)
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
            records: Records = []
            played = _play(config, playing, None, records, callbacks)
            results = Results(config.as_dict(), playing.made_with, played)
        else:
            with RunFolder.open(path, config.as_dict(), playing.made_with) as folder:
                checkpoint, records = last_state(folder, config)
                played = _play(config, playing, folder, records, callbacks, checkpoint)
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
    records: Records,
    callbacks: Sequence[Callback],
    checkpoint: State | None = None,
) -> Records:
    """Run the remaining rounds, and return all records.

    They are appended after every round; a checkpoint is written every few seconds. Records after the last checkpoint
    are dropped when an experiment is resumed, and computed again to the same bytes. A finished one has no checkpoint.
    """
    runs = len(config.selectors) * len(config.seeds)
    played, every = len(records) // runs, list(records)
    player.begin(folder, checkpoint, records)
    for callback in callbacks:
        callback.on_start(config, player)
    more = not played or _notify(callbacks, played, records)
    while played < config.rounds and (more or player.ahead):
        found, due = player.play(more=more)
        if folder is not None:
            folder.append(found)
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


def last_state(folder: RunFolder, config: Config) -> tuple[State | None, Records]:
    """The checkpoint to resume from, if any, and the records of the rounds before it.

    Later records are dropped. If earlier ones are missing, that is an error and nothing is changed. Where every
    record is there, all rounds are played, and the checkpoint does not matter.
    """
    records, expected = folder.rows(), _keys(config)
    if is_complete(records, config):
        return None, records
    checkpoint = folder.load_checkpoint()
    played = 0 if checkpoint is None else int(checkpoint["rounds_played"])
    least = played * len(config.selectors) * len(config.seeds)
    where, advice = folder.path / ROUNDS, "put the whole file back, or start in another folder"
    if len(records) < least:
        raise ValueError(f"{where}: {len(records)} records where the checkpoint has {least}; {advice}")
    for line, (record, key) in enumerate(zip_longest(records, expected[: len(records)]), 1):
        if _key(record) != key:
            named = "round {}, {}, seed {}".format
            meant = named(*key) if key else "the end of the file"
            raise ValueError(f"{where}, line {line}: is of {named(*_key(record))}; expected: {meant}; {advice}")
    if records and checkpoint is None:
        log.info("%s: no checkpoint yet; the rounds in %s are played again", folder.path, ROUNDS)
    if len(records) > least:
        folder.keep_before(played)
    return checkpoint, records[:least]


def finished_results(path: Path, config: Config) -> Results | None:
    """The results in a folder if they are finished; None if rounds are left."""
    if not (path / CONFIG).is_file():
        return None
    if config.clients is None:  # the data were counted when it began
        config = replace(config, clients=RunFolder(path).config.get("clients"))
    with RunFolder.open(path, config.as_dict(), {}) as folder:
        records = folder.rows()
        if not is_complete(records, config):
            return None
        try:
            folder.finish()  # a run that was killed as it ended may have left its checkpoint
        except OSError as error:
            log.warning("%s", error)
        return Results(folder.config, folder.made_with, records, path)


def is_complete(records: Records, config: Config) -> bool:
    """Whether every round of every selector and seed is recorded, once."""
    return sorted(map(_key, records)) == sorted(_keys(config))


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


def _keys(config: Config) -> list[tuple[int, str, int]]:
    """Round, selector and seed of every record of a run, in their order."""
    return [(r, name, seed) for r in range(config.rounds) for name in config.selectors for seed in config.seeds]


def _key(record: Mapping[str, Any]) -> tuple[int, str, int]:
    return record["round"], record["selector"], record["seed"]
