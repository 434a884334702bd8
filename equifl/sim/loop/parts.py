"""The runs of an experiment in parts: a worker each, or those that a run folder lacks; and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.experiment.config import Config, make_selector
from equifl.selectors.base import needs
from equifl.signals import Ints

_OF_INFORMED = (
    "updates",
    "distances",
    "sketches",
)  # checkpoint keys with rows only for runs whose selector uses updates

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
    places, informed = _places(config, group)
    return {
        key: value if value.size == 0 or value.ndim == 0 else value[informed if key in _OF_INFORMED else places]
        for key, value in state.items()
    }


def joined(states: Sequence[State], config: Config, groups: Sequence[Config]) -> dict[str, NDArray[Any]]:
    """The checkpoint of the whole configuration, as a run without a cluster writes it."""
    whole: dict[str, NDArray[Any]] = {}
    for state, group in zip(states, groups, strict=True):
        places, informed = _places(config, group)
        for key, value in state.items():
            if value.size == 0 or value.ndim == 0:
                whole.setdefault(key, value)
                continue
            count, rows = _count(config)[key in _OF_INFORMED], informed if key in _OF_INFORMED else places
            if whole.get(key, value[:0]).size == 0:
                whole[key] = np.zeros((count, *value.shape[1:]), value.dtype)
            whole[key][rows] = value
    return whole


def runs_of(config: Config) -> list[tuple[str, int]]:
    """Selector and seed of every run, in the order of records."""
    return [(name, seed) for name in config.selectors for seed in config.seeds]


def _informed(config: Config) -> list[tuple[str, int]]:
    uses = {name: "updates" in needs(make_selector(name, options)) for name, options in config.selectors.items()}
    return [run for run in runs_of(config) if uses[run[0]]]


def _places(config: Config, group: Config) -> tuple[Ints, Ints]:
    """Where the runs of a group are among all, and where the informed ones are among the informed."""
    mine, ours = runs_of(group), runs_of(config)
    informed, all_informed = _informed(group), _informed(config)
    return (
        np.array([ours.index(run) for run in mine], np.int64),
        np.array([all_informed.index(run) for run in informed], np.int64),
    )


def _count(config: Config) -> tuple[int, int]:
    return len(runs_of(config)), len(_informed(config))


def _shares(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]
