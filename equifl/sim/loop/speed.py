"""How long clients take: seconds of a round, from a distribution of speeds or a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equifl._numerics.checks import brief, require, shown
from equifl.experiment.config import Speed, Train
from equifl.signals import Floats
from equifl.sim.data.own_arrays import is_file

# Factors of median 1 that multiply `step_seconds`, one a client.
FACTORS: Mapping[str, Callable[[np.random.Generator, int, float], Floats]] = {
    "lognormal": lambda rng, n, sigma: np.exp(sigma * rng.standard_normal(n)),
    "exponential": lambda rng, n, sigma: rng.exponential(size=n) / np.log(2),
}


@dataclass(frozen=True, eq=False)
class Clock:
    """The seconds that clients take for a round: local steps times their seconds a step, and the transfer.

    Args:
        training: (N,) seconds that a client trains in a round, without jitter.
        reply: seconds that are the same for all: sending the model and the update.
        jitter: sigma of a lognormal factor of `training` in each round.
        trace: (rounds, N) seconds of whole rounds, instead of all else.
    """

    training: Floats
    reply: float = 0.0
    jitter: float = 0.0
    trace: Floats | None = None

    @classmethod
    def make(cls, speed: Speed, train: Train, sizes: Floats, rng: np.random.Generator) -> Clock | None:
        """The clock of a configuration; None if it has none."""
        if speed.trace is not None:
            return cls(sizes, trace=read_seconds(speed.trace, len(sizes)))
        if speed.step_seconds is None:
            return None
        batches = np.ceil(sizes / np.minimum(train.batch_size, sizes))
        steps = np.full(len(sizes), train.steps) if train.epochs is None else train.epochs * batches
        factors = FACTORS[speed.distribution or "lognormal"](rng, len(sizes), speed.sigma or 0.0)
        return cls(speed.step_seconds * steps * factors, speed.reply_seconds or 0.0, speed.jitter or 0.0)

    def durations(self, round: int, rng: np.random.Generator) -> Floats:
        """(N,) the seconds that each client would take in a round."""
        if self.trace is not None:
            return self.trace[round % len(self.trace)]
        factors = np.exp(self.jitter * rng.standard_normal(len(self.training)))
        return self.training * factors + self.reply


def read_table(key: str, path: str, clients: int) -> Floats:
    """(rounds, N) from a CSV file, which this key of the configuration names."""
    require(key, path, is_file(path), "the path of a CSV file")
    try:
        table = np.loadtxt(Path(path), delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}: {shown(path)} cannot be read ({brief(error)})") from None
    require(key, path, table.shape[1] == clients, f"{clients} columns, not {table.shape[1]}")
    return table


def read_seconds(path: str, clients: int) -> Floats:
    """(rounds, N) from a CSV file of seconds above 0."""
    table = read_table("speed.trace", path, clients)
    require("speed.trace", path, bool(((table > 0) & (table < np.inf)).all()), "seconds above 0 only")
    return table
