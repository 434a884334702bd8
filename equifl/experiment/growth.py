"""What a run folder holds of an experiment, and what it lacks: more selectors, seeds or rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any

from equifl._numerics.checks import require
from equifl.experiment.config import Config, make_selector
from equifl.experiment.names import listed
from equifl.experiment.records import as_json
from equifl.experiment.run_folder import require_same
from equifl.experiment.task_table import is_evaluated, score_of


class Holds(Enum):
    """What a folder holds of the experiment that is asked for."""

    THE_SAME = auto()
    LESS = auto()  # fewer selectors, seeds or rounds
    MORE = auto()


@dataclass(frozen=True)
class Part:
    """Runs that a folder lacks: a configuration of some selectors and seeds, to be played as a run of its own.

    Args:
        config: with all rounds.
        begun: whether the folder has the first rounds of these runs.
    """

    config: Config
    begun: bool


def holds(path: Path, stored: Mapping[str, Any], asked: Config) -> Holds:
    """What the folder at `path`, of this configuration, holds of the experiment that is asked for.

    Raises:
        ValueError: it is of another experiment, or has more of one and less of another, or rounds that depend on how
            many there are.
    """
    here = json.loads(as_json(asked.as_dict()))
    if stored["rounds"] is None:  # of a live federation
        require_same(path, stored, here)
    both = [name for name in here["selectors"] if name in stored["selectors"]]
    alike = [{k: v for k, v in one.items() if k not in ("seeds", "rounds")} for one in (stored, here)]
    require_same(path, *(one | {"selectors": {name: one["selectors"][name] for name in both}} for one in alike))
    if [list(stored["selectors"]), stored["seeds"], stored["rounds"]] == [
        list(here["selectors"]),
        here["seeds"],
        here["rounds"],
    ]:
        return Holds.THE_SAME
    more, less = _more(here, stored), _more(stored, here)
    if more and less:
        raise ValueError(
            f"{path}: lacks {listed(more)}, and has {listed(less)} that are not asked for; ask for these as well, or "
            "choose another folder"
        )
    if asked.rounds != stored["rounds"] and asked.train.lr_schedule == "cosine":
        raise ValueError(
            f"{path}: holds {stored['rounds']} rounds, {asked.rounds} are asked for; with train.lr_schedule = "
            "'cosine' every round depends on how many there are; choose another folder"
        )
    return Holds.LESS if more else Holds.MORE


def missing(stored: Mapping[str, Any], asked: Config, *, finished: bool) -> list[Part]:
    """The parts that a folder lacks of an experiment, each a product of selectors and seeds.

    Args:
        stored: the configuration of the folder.
        asked: the experiment, of which the folder holds less.
        finished: whether all rounds of the folder are played.
    """
    old, seeds = list(stored["selectors"]), list(stored["seeds"])
    tables = dict(asked.selectors)
    there = replace(asked, selectors={name: tables[name] for name in old}, seeds=tuple(seeds))
    parts = [Part(there, True)] if not finished or asked.rounds > stored["rounds"] else []
    new_seeds = tuple(seed for seed in asked.seeds if seed not in seeds)
    if new_seeds:
        parts.append(Part(replace(there, seeds=new_seeds), False))
    new = {name: options for name, options in tables.items() if name not in old}
    if new:
        parts.append(Part(replace(asked, selectors=new), False))
    return parts


def described(stored: Mapping[str, Any], asked: Config) -> str:
    """What is added to a folder, in words.

    >>> stored = {"selectors": {"rota": {}}, "seeds": [0, 1], "rounds": 60}
    >>> described(stored, Config.load(None, ["seeds=[0,1,2,3]", "selectors={rota={}, divfl={}}", "rounds=80"]))
    '2 of 8 runs are there, with 60 of 80 rounds; added: seeds 2 and 3, selector divfl, rounds up to 80'
    """
    here = asked.as_dict()
    there, runs = len(stored["selectors"]) * len(stored["seeds"]), len(asked.selectors) * len(asked.seeds)
    played = f", with {stored['rounds']} of {asked.rounds} rounds" if asked.rounds > stored["rounds"] else ""
    return f"{there} of {runs} runs are there{played}; added: {', '.join(_more(here, stored))}"


def beyond(stored: Mapping[str, Any], asked: Config) -> str:
    """What a folder holds beyond an experiment, in words.

    >>> stored = {"selectors": {"rota": {}}, "seeds": [0, 1], "rounds": 60}
    >>> beyond(stored, Config.load(None, ["seeds=[0]", "selectors={rota={}}", "rounds=50"]))
    'seed 1 and rounds up to 60'
    """
    return listed(_more(stored, asked.as_dict()))


def spelled_as(stored: Mapping[str, Any], asked: Config) -> Config:
    """The experiment with selectors written as in the folder, if they are the same, and with its number of clients."""
    tables = {
        name: _spelled(name, options, stored["selectors"].get(name)) for name, options in asked.selectors.items()
    }
    clients = stored["clients"] if asked.clients is None else asked.clients
    return replace(asked, selectors=tables, clients=clients)


def part_of_records(records: Iterable[dict[str, Any]], asked: Config, path: Path) -> list[dict[str, Any]]:
    """The records of an experiment, from those of a larger one, in its own order.

    Raises:
        ValueError: they are not all there, or the last round asked for was not evaluated.
    """
    by_key = {(record["round"], record["selector"], record["seed"]): record for record in records}
    wanted = [(t, name, seed) for t in range(asked.rounds) for name in asked.selectors for seed in asked.seeds]
    if any(key not in by_key for key in wanted):
        raise ValueError(
            f"{path}: holds a larger experiment, which is not finished; finish that first, or choose another folder"
        )
    found = [by_key[key] for key in wanted]
    due = [record for record in found if asked.evaluates(record["round"])]
    allowed = f"rounds that {path} has evaluated, every {asked.evaluate_every}; or choose another folder"
    require("rounds", asked.rounds, all(map(is_evaluated, due)), allowed)
    return found


def with_more_rounds(records: Iterable[dict[str, Any]], asked: Config) -> list[dict[str, Any]]:
    """Records as if the experiment had more rounds: what were its last ones are evaluated only if it is their turn."""
    first = score_of(asked.as_dict()).key
    return [record if asked.evaluates(record["round"]) else _unevaluated(record, first) for record in records]


def _unevaluated(record: dict[str, Any], first: str) -> dict[str, Any]:
    """A record without what an evaluation added to it: from this field on, which comes after all others."""
    names = list(record)
    return {name: record[name] for name in names[: names.index(first) if first in record else None]}


def _more(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What one experiment has and another has not, in words."""
    seeds = [str(seed) for seed in one["seeds"] if seed not in other["seeds"]]
    selectors = [name for name in one["selectors"] if name not in other["selectors"]]
    found = [f"seed{'s' * (len(seeds) > 1)} {_few(seeds)}"] if seeds else []
    found += [f"selector{'s' * (len(selectors) > 1)} {_few(selectors)}"] if selectors else []
    return found + ([f"rounds up to {one['rounds']}"] if one["rounds"] > other["rounds"] else [])


def _few(names: Sequence[str]) -> str:
    return listed(names if len(names) <= 10 else [*names[:9], f"{len(names) - 9} more"])


def _spelled(name: str, options: dict[str, Any], stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The stored table of a selector, if it makes an equal one."""
    try:
        same = stored is not None and make_selector(name, options) == make_selector(name, stored)
    except ValueError:  # its class is no longer there
        same = False
    return dict(stored) if same and stored is not None else options
