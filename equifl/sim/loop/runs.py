"""What the round loop keeps of a run, and what clients send back in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from equifl.selectors import Selector
from equifl.selectors.base import needs
from equifl.signals import Floats, Ints
from equifl.sim.loop.environment import World
from equifl.store import SignalStore


@dataclass
class Lane:
    """One run: who selects, in which world, and what the server remembers."""

    name: str
    selector: Selector
    world: World
    store: SignalStore
    cohorts: list[Ints]

    @property
    def needs(self) -> frozenset[str]:
        """Which signals its selector looks at."""
        return needs(self.selector)


@dataclass(frozen=True)
class LocalUpdates:
    """What local training gave, a row a client."""

    updates: Tensor  # (M, d)
    last_loss: Tensor  # (M,)
    scale: Tensor  # (M,)
    total: Tensor  # (M,) of loss and weights: finite if they are


@dataclass(frozen=True)
class Replies:
    """What the cohorts of all lanes sent back, a row a client."""

    owner: Ints
    clients: Ints
    local: LocalUpdates
    losses: Tensor  # (M,) at the model that was sent, where anybody looks at them; else nan


def rows_of(lane: int, owner: Ints) -> slice:
    """Where a lane's rows are; those of a lane follow each other."""
    return slice(*np.searchsorted(owner, (lane, lane + 1)).tolist())


def require_finite(round: int, numbers: Floats, lanes: Sequence[Lane], owner: Ints, clients: Ints) -> None:
    """There is no going on from what is no number: stop, and say whose it was."""
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        lane = lanes[owner[wrong[0]]]
        who = ", ".join(map(str, clients[wrong[owner[wrong] == owner[wrong[0]]]][:5]))
        where = f"round {round}, {lane.name}, seed {lane.world.seed}"
        raise ValueError(f"{where}: the losses or weights of clients {who} are not finite; try a smaller train.lr")


def pairs(owner: Ints, clients: Ints) -> Iterable[tuple[int, int]]:
    """Lane and client of every row."""
    return zip(owner.tolist(), clients.tolist(), strict=True)


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
