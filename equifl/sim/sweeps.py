"""Experiments of a sweep, side by side in one folder, played one after the other and resumed as one."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equifl.experiment.atomic_write import replacing
from equifl.experiment.config import Config
from equifl.experiment.results import Results, join_sweep
from equifl.experiment.run_folder import CONFIG, SWEEP
from equifl.experiment.sweep import parameters_of, sweep_folders
from equifl.experiment.task_table import TaskTable
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.download import Progress
from equifl.sim.loop.environment import Environment, resolved
from equifl.sim.simulation import load_data, simulate
from equifl.sim.tasks import make_task

log = logging.getLogger("equifl")


def simulate_points(points: Mapping[str, Config], *, out: Path | str | None = None, **options: Any) -> Results:
    """Simulate every experiment of a sweep, and return all results as one.

    Args:
        points: configurations by name, as `equifl.experiment.sweep` makes them; one without a name is played alone.
        out: the folder, with a folder for each experiment in it; None = in memory only.
        options: those of `simulate`.
    """
    if list(points) == [""]:
        return simulate(points[""], out=out, **options)
    if out is None or not (Path(out) / SWEEP).is_file():  # not of one that goes on
        _require_data(points, options.get("dataset"), options.get("data_dir"), options.get("downloads"))
    folders = None if out is None else _prepared(Path(out), list(points))
    found: dict[str, Results] = {}
    for number, (name, config) in enumerate(points.items(), 1):
        log.info("%s (%d of %d)", name, number, len(points))
        found[name] = simulate(config, out=None if folders is None else folders[name], **options)
        if not found[name].finished:
            break
    whole = all(one.folder is not None for one in found.values()) and (
        out is None or len(sweep_folders(Path(out))) == len(points)
    )
    return join_sweep(found, Path(out) if out is not None and whole else None)


def _require_data(
    points: Mapping[str, Config], dataset: Dataset | None, data_dir: Path | None, downloads: Progress | None
) -> None:
    """Refuse data, clients or a task that one of the experiments cannot have, before the first is played."""
    distinct: dict[str, tuple[Any, Config]] = {}
    for name, config in points.items():
        needs = config.data, config.clients, config.task.name
        if needs not in [known for known, _ in distinct.values()]:
            distinct[name] = needs, config
    for name, (_, config) in distinct.items() if len(distinct) > 1 else ():  # of one kind, the first says it at once
        try:
            found = dataset or load_data(config, data_dir, downloads)
            Environment.make(resolved(config, found), found, config.seeds[0])
            make_task(TaskTable(name=config.task.name), found)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _prepared(path: Path, names: list[str]) -> dict[str, Path]:
    """The folder of every experiment, written down in the sweep's; more experiments may come to those there."""
    if (path / CONFIG).exists():
        raise ValueError(f"{path}: holds a single experiment; choose another folder for the sweep")
    path.mkdir(parents=True, exist_ok=True)
    there = sweep_folders(path) if (path / SWEEP).exists() else {}
    if not there and any(path.iterdir()):
        raise ValueError(f"{path}: is not empty and holds no sweep; choose another folder")
    keys = {tuple(parameters_of(f"[{name}]")) for name in (*there, *names)}
    if len(keys) > 1:
        over = " and ".join(", ".join(key) for key in sorted(keys))
        raise ValueError(f"{path}: holds a sweep over other keys ({over}); choose another folder")
    for name in names:
        there.setdefault(name, _folder_name(name, set(there.values())))
    with replacing(path / SWEEP) as file:
        file.write((json.dumps({"points": there}, indent=2) + "\n").encode())
    return {name: path / there[name] for name in names}


def _folder_name(name: str, taken: set[str]) -> str:
    """A name that every disk takes."""
    plain = re.sub(r"[^\w.=+-]+", "_", name)[:100]
    return next(one for i in range(len(taken) + 1) if (one := plain if i == 0 else f"{plain}-{i}") not in taken)
