"""The runs of an experiment in parts: a worker each, or those that a run folder lacks; and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.experiment.config import Config, make_selector
from equifl.selectors.base import needs
from equifl.signals import OPTIONAL, Ints

# Keys of a checkpoint with rows only for runs whose selector uses a signal, and that signal.
_OF_USERS = {"updates": "updates", "distances": "updates", "sketches": "updates"}
_OF_USERS |= {f"signals.{name}": name for name in OPTIONAL}

State = Mapping[str, NDArray[Any]]


def split(config: Config, workers: int) -> list[Config]:
    """Every run in one of at most `workers` groups: seeds are kept together last, since their runs share work.

    >>> config = Config.load(overrides=["seeds=[0,1,2]"])
    >>> [group.seeds for group in split(config, 2)], len(split(config, 7))
    ([(0,), (1, 2)], 6)
    """
    by_seed = min(len(config.seeds), workers)
    by_selector = min(len(config.selectors), max(1, workers // by_seed))
    return [
        replace(config, seeds=tuple(seeds), selectors={name: config.selectors[name] for name in names})
        for seeds in _shares(config.seeds, by_seed)
        for names in _shares(list(config.selectors), by_selector)
    ]


def part_of(state: State, config: Config, group: Config) -> dict[str, NDArray[Any]]:
    """The checkpoint of one group, from that of the whole configuration."""
    return {
        key: value if value.size == 0 or value.ndim == 0 else value[_places(config, group, key)]
        for key, value in state.items()
    }


def joined(states: Sequence[State], config: Config, groups: Sequence[Config]) -> dict[str, NDArray[Any]]:
    """The checkpoint of the whole configuration, as a run without a cluster writes it."""
    whole: dict[str, NDArray[Any]] = {}
    for state, group in zip(states, groups, strict=True):
        for key, value in state.items():
            if value.size == 0 or value.ndim == 0:
                whole.setdefault(key, value)
                continue
            if whole.get(key, value[:0]).size == 0:
                whole[key] = np.zeros((len(_users(config, key)), *value.shape[1:]), value.dtype)
            whole[key][_places(config, group, key)] = value
    return whole


def runs_of(config: Config) -> list[tuple[str, int]]:
    """Selector and seed of every run, in the order of records."""
    return [(name, seed) for name in config.selectors for seed in config.seeds]


def _users(config: Config, key: str) -> list[tuple[str, int]]:
    """The runs that have a row in an array of a checkpoint."""
    signal, every = _OF_USERS.get(key), runs_of(config)
    if signal is None:
        return every
    uses = {name: signal in needs(make_selector(name, options)) for name, options in config.selectors.items()}
    return [run for run in every if uses[run[0]]]


def _places(config: Config, group: Config, key: str) -> Ints:
    """Where the rows of a group are among those of all."""
    ours = _users(config, key)
    return np.array([ours.index(run) for run in _users(group, key)], np.int64)


def _shares(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]
