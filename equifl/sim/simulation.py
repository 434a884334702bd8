"""`simulate`: from a configuration to results; an interrupted experiment is resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from equifl._numerics.checks import keywords, known, require
from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.growth import Holds, beyond, holds, spelled_as
from equifl.experiment.results import Results
from equifl.experiment.run_folder import CONFIG, RunFolder
from equifl.experiment.sweep import points
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.download import Progress
from equifl.sim.engines.choose import CHOICES
from equifl.sim.growing import grown
from equifl.sim.loop.environment import data_options, in_table, resolved
from equifl.sim.players import LocalPlayer, Player
from equifl.sim.playing import engine_for, finished_results, last_state, part_of_folder, play
from equifl.sim.settings import Settings, as_written, configured, known_again, require_digest
from equifl.sim.stopping import StopRequests

log = logging.getLogger("equifl")

MakePlayer: TypeAlias = Callable[..., Player]  # (config, dataset, *, device, engine[, model, functions])


def simulate(
    config: Config | None = None,
    *,
    dataset: Dataset | None = None,
    out: Path | str | None = None,
    device: str = "auto",
    data_dir: Path | str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    downloads: Progress | None = None,
    player: MakePlayer = LocalPlayer,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    **settings: Unpack[Settings],
) -> Results:
    """Run every selector with every seed, and return the results.

    With `out`, every round is recorded in that folder, and the same call resumes an interrupted experiment; of a
    finished one it returns the results at once. With more selectors, seeds or rounds than the folder holds, only what
    is missing is played; with fewer, that part is returned. Ctrl-C stops after the round, with a checkpoint in
    the folder, and returns the results so far; a second one ends at once.

    All keys of the configuration file are keywords, with the same meaning, default and check (docs/simulator.md):
    `rounds=60`, `clients=30`, `per_round=5`, `seeds=5`, `selectors`, `data`, `evaluate_every=5`, `evaluate_last`,
    `signal="update"`, `introduce=False`, `signal_examples`, `sketch`, `memory_limit`, `engine="auto"`, and the tables
    `train={"lr": 0.05, ...}`, `server={...}`, `availability={...}`, `speed={...}`. They may be Python's own objects:

    - `selectors`: objects or tables by name, `{"rota": Rota(), "strict": {"class": "subtrunc", "lam": 0.9}}`; or a
      list of objects and names.
    - `data`: a name, a table, a `Dataset`, or arrays: `(x, y)`, `(x, y, owners)`, `(x_train, y_train, x_test, y_test)`
      or these with `owners_train, owners_test`. Owners are the clients. Without a test split, every fifth example is
      for testing. `partition="iid"` or a table stands for `data={"partition": ...}`.
    - `task`: "regression", or a table, `{"loss": focal, "score": top5}` with functions of outputs and targets.
    - `model`, for `train={"model": ...}`: a name, a class or function that makes a `torch.nn.Module`, called for every
      seed; or a module, from whose weights every seed starts.
    - `aggregate`, for `server={"aggregate": ...}`: a server rule by name, as a table or an object, `Memory(q=1.0)`.
    - `seeds`: how many, or which.

    Args:
        config: what is not given is as there; None = as in a file that leaves it out: the digits, six selectors.
        dataset: the data of the configuration, if they are loaded already.
        out: the run folder; None = in memory only.
        device: auto, cpu or cuda.
        data_dir: where files of data sets are looked for first.
        callbacks: called at the start, after every round, and at the end.
        progress: whether to show it, on standard error or in the notebook; None = in a terminal or a notebook.
        downloads: called with the progress of downloads.
        player: what makes the player: `LocalPlayer`, or for a cluster `functools.partial(Sweep, address=...)`.
        sweep: values by dotted key, such as `{"train.lr": [0.01, 0.02], "selectors.subtrunc.lam": [0, 0.5]}`: all
            combinations are run, and are rows of one table.
        settings: keys of the configuration, over those of `config`.

    >>> from equifl import Rota, Uniform
    >>> chosen = {"uniform": Uniform(), "rota": Rota()}
    >>> results = simulate(selectors=chosen, model="logistic", rounds=2, clients=10, seeds=1, evaluate_every=1)
    >>> results.rounds_played, list(results.table().cells)
    (2, ['uniform', 'rota'])
    """
    callbacks = _checked(callbacks)
    by_name = "a Config; give keywords by name, as in simulate(rounds=5)"
    require("config", config, config is None or isinstance(config, Config), by_name)
    require("sweep", sweep, sweep is None or isinstance(sweep, Mapping), "a table of keys and lists of values")
    for name, path in (("out", out), ("data_dir", data_dir)):
        require(name, path, path is None or isinstance(path, str | Path), "a path, or None")
    if dataset is not None and config is None and "data" not in settings:
        settings["data"], dataset = dataset, None
    own = keywords(simulate)
    given = configured(config, settings, own)
    stop = StopRequests()
    with as_written(given.short), _shown(progress) as (watching, bars), stop.listening():
        options: dict[str, Any] = {
            "dataset": given.dataset or dataset,
            "device": device,
            "data_dir": None if data_dir is None else Path(data_dir),
            "callbacks": [*watching, *callbacks, stop],
            "downloads": downloads or bars,
            "player": partial(player, **given.objects) if given.objects else player,
        }
        config = given.config if out is None else known_again(given)
        if given.remark:
            log.info(given.remark)
        if sweep:
            for key, keyword in given.object_keys.items():
                require("sweep", key, key not in sweep, f"other keys, or leave out {keyword}, which is an object")
            from equifl.sim.sweeps import simulate_points  # which calls us for each of them

            return simulate_points(points(config.overridden, sweep), out=out, progress=False, **options)
        return _simulated(config, None if out is None else Path(out), **options)


def _simulated(
    config: Config,
    path: Path | None,
    *,
    dataset: Dataset | None,
    device: str,
    data_dir: Path | None,
    callbacks: Sequence[Callback],
    downloads: Progress | None,
    player: MakePlayer,
) -> Results:
    """The results of one experiment: those in the folder, or what is missing of them played now."""
    known("engine", [config.engine], CHOICES)
    held = Holds.THE_SAME
    if path is not None and (path / CONFIG).is_file():
        stored = RunFolder(path).config
        config = spelled_as(stored, config)
        held = holds(path, stored, config)
        if held is not Holds.LESS:
            done = part_of_folder(path, config) if held is Holds.MORE else finished_results(path, config)
            if done is not None and held is Holds.MORE:
                log.info("%s: also holds %s; the results are without it", path, beyond(stored, config))
            elif done is not None:
                log.info("%s: finished already; to run it again, choose another folder", path)
            if done is not None:
                return _ended(done, callbacks)
    if dataset is None:
        dataset = load_data(config, data_dir, downloads)
        require_digest(config, dataset)
    config, engine = resolved(config, dataset), config.engine if path is None else engine_for(path, config)

    def played(part: Config, place: Path | None) -> Results:
        done = finished_results(place, part) if place is not None and place != path else None
        if done is not None:
            return done
        playing = player(part, dataset, device=device, engine=engine)
        try:
            if place is None:
                return Results(part.as_dict(), playing.made_with, play(part, playing, None, callbacks))
            # Not before, so that an invalid experiment leaves no folder.
            with RunFolder.open(place, part.as_dict(), playing.made_with) as folder:
                records = play(part, playing, folder, callbacks, *last_state(folder, part))
                return Results(folder.config, folder.made_with, records, place)
        finally:
            playing.close()

    results = grown(path, config, played) if path is not None and held is Holds.LESS else played(config, path)
    return _ended(results, callbacks)


def _ended(results: Results, callbacks: Sequence[Callback]) -> Results:
    for callback in callbacks:
        callback.on_end(results)
    return results


def _checked(callbacks: Any) -> list[Callback]:
    """The callbacks; one alone stands for a list."""
    found = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for callback in found:
        fits = all(callable(getattr(callback, name, None)) for name in ("on_start", "on_round", "on_end"))
        fits = fits and not isinstance(callback, type)
        require(
            "callbacks",
            callback,
            fits,
            "objects with on_start, on_round and on_end; inherit equifl.Callback",
        )
    return found


@contextmanager
def _shown(progress: bool | None) -> Iterator[tuple[list[Callback], Progress | None]]:
    """Callbacks that show progress, and what shows downloads; log messages are shown with them."""
    require("progress", progress, progress is None or isinstance(progress, bool), "True, False or None")
    if progress is False:
        yield [], None
        return
    from equifl.sim.progress import Watch, downloads, is_watched, notes  # rich, which only a watched run needs

    if progress is None and not is_watched():
        yield [], None
        return
    with notes(False), downloads(False) as bars, Watch(False) as watch:
        yield [watch], bars


def load_data(config: Config, data_dir: Path | None, progress: Progress | None = None) -> Dataset:
    """The data set that a configuration asks for."""
    options = data_options(config)
    try:
        return load(config.data.name, data_dir=data_dir, progress=progress, **options)
    except ValueError as error:
        raise in_table("data", options.keys() - {"clients"}, error) from None
