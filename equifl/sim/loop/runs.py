"""The state of a run in the round loop, and the replies of a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from equifl.experiment.config import Config
from equifl.selectors import Selector
from equifl.selectors.base import needs
from equifl.signals import Floats, Ints
from equifl.sim.loop.environment import Environment
from equifl.sketch import CountSketch
from equifl.store import SignalStore


@dataclass
class Run:
    """A selector and a seed: the selector, its environment, and the server's memory."""

    name: str
    selector: Selector
    environment: Environment
    store: SignalStore
    cohorts: list[Ints]
    memory: Any = None  # of the server rule

    def __post_init__(self) -> None:
        counts = self.environment.label_counts if "label_counts" in self.needs else None
        if counts is not None:
            self.store.observe(np.arange(len(counts)), label_counts=counts)

    @property
    def seed(self) -> int:
        """The seed of its environment."""
        return self.environment.seed

    @property
    def needs(self) -> frozenset[str]:
        """The signals that its selector uses."""
        return needs(self.selector)


def new_store(config: Config, environment: Environment) -> SignalStore:
    """The memory of a server that has heard of no client yet."""
    length, server, sizes = config.sketch, config.server, environment.sizes
    sketch = None if length is None else CountSketch(length=length, seed=environment.seed)
    catch_up = 1 if server.catch_up is None else server.catch_up
    return SignalStore(len(sizes), sizes=sizes, catch_up=catch_up, guard=server.guard, sketch=sketch)


@dataclass(frozen=True)
class LocalUpdates:
    """Results of local training, a row a client."""

    updates: Tensor  # (M, d)
    last_loss: Tensor  # (M,)
    scale: Tensor  # (M,)
    total: Tensor  # (M,) of loss and weights: finite if they are


@dataclass(frozen=True)
class AllReplies:
    """What the cohorts of all runs sent back, a row a client; those of a run follow each other."""

    run: Ints  # (M,) the position of each row's run
    clients: Ints
    local: LocalUpdates
    losses: Tensor  # (M,) at the model that was sent, if needed; else nan


def rows_of(run: int, runs: Ints) -> slice:
    """Where the rows of a run are, if those of a run follow each other."""
    return slice(*np.searchsorted(runs, (run, run + 1)).tolist())


def require_finite(round: int, numbers: Floats, runs: Sequence[Run], run: Ints, clients: Ints) -> None:
    """Raise ValueError if a number is not finite, with its run and clients."""
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        first = run[wrong[0]]
        who = ", ".join(map(str, clients[wrong[run[wrong] == first]][:5]))
        where = f"round {round}, {runs[first].name}, seed {runs[first].seed}"
        raise ValueError(f"{where}: the losses or weights of clients {who} are not finite; try a smaller train.lr")


def require_losses(round: int, losses: Floats, run: Run) -> None:
    """Raise ValueError for a loss below 0, which only a loss of one's own can be, and no selector takes."""
    if (losses < 0).any():
        raise ValueError(
            f"round {round}, {run.name}, seed {run.seed}: a client's loss is {losses.min():.4g}; selectors that look "
            "at losses take 0 or more; add a constant in the function that task.loss names"
        )


def pairs(run: Ints, clients: Ints) -> Iterable[tuple[int, int]]:
    """Run and client of every row."""
    return zip(run.tolist(), clients.tolist(), strict=True)


def layer_seeds(runs: Sequence[Run], run: Ints, clients: Ints, round: int) -> Ints:
    """(M,) the seeds of every row's random layers in a round."""
    return np.array([runs[i].environment.layer_seed(round, client) for i, client in pairs(run, clients)], np.int64)


def selections(cohorts: Sequence[Ints]) -> Ints:
    """(M, 2) round and client of every selection, from the cohorts round by round."""
    rounds = np.repeat(np.arange(len(cohorts)), [len(cohort) for cohort in cohorts])
    return np.column_stack([rounds, np.concatenate([np.zeros(0, np.int64), *cohorts])])


def stack(ragged: list[Ints]) -> Ints:
    """One array from arrays that differ in their lengths, filled up with -1."""
    shape = np.max([array.shape for array in ragged], axis=0)
    out = np.full((len(ragged), *shape), -1, np.int64)
    for row, array in zip(out, ragged, strict=True):
        row[tuple(slice(0, n) for n in array.shape)] = array
    return out
