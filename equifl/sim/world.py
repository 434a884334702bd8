"""What a seed decides, whoever selects: the partition, the first model, batches, who is online, who drops out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from equifl.checks import require
from equifl.config import Availability, Config
from equifl.signals import Bools, Floats, Ints
from equifl.sim.data import Dataset, options_of
from equifl.sim.engines.torch.engine import Sgd
from equifl.sim.partition import Partition, split

STREAMS = ("partition", "init", "batches", "selection", "available", "dropout", "examples")


@dataclass(frozen=True, eq=False)
class World:
    """Everything random that all selectors of one seed share. Every draw has a stream of its own, for each round."""

    seed: int
    partition: Partition
    sizes: Floats
    availability: Availability
    trace: Bools | None
    most_examples: int | None

    @classmethod
    def make(cls, config: Config, dataset: Dataset, seed: int) -> World:
        """Divide the data as the configuration says."""
        rng = np.random.default_rng([seed, STREAMS.index("partition")])
        try:
            partition = split(config.data.partition, dataset, config.clients, rng=rng, **partition_options(config))
        except ValueError as error:
            raise ValueError(f"data: {error}") from None
        sizes = np.array([len(ids) for ids in partition.train], np.float64)
        trace = None if config.availability.trace is None else read_trace(config.availability.trace, config.clients)
        return cls(seed, partition, sizes, config.availability, trace, config.signal_examples)

    def stream(self, name: str, *numbers: int) -> np.random.Generator:
        """The generator for one purpose, and one round or client; rounds count from -1."""
        return np.random.default_rng([self.seed, STREAMS.index(name), *(number + 1 for number in numbers)])

    def initial_weights(self, make: Callable[[], nn.Module]) -> Tensor:
        """(d,) the weights of a new module, initialised as it does itself, with PyTorch's generator left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.stream("init").integers(2**63)))
            module = make()
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    def batches(self, sgd: Sgd, round: int, client: int) -> Ints:
        """(steps, batch) positions in the training data, the same whoever selected the client."""
        mine = self.partition.train[client]
        order = sgd.batches(len(mine), self.stream("batches", round, client))
        return np.where(order >= 0, mine[order], -1)

    def signal_examples(self, client: int) -> Ints:
        """The training examples from which a client tells its loss and gradient."""
        mine = self.partition.train[client]
        if self.most_examples is None or len(mine) <= self.most_examples:
            return mine
        return np.sort(self.stream("examples", client).choice(mine, self.most_examples, replace=False))

    def available(self, round: int) -> Bools:
        """(N,) who is online in a round."""
        if self.trace is not None:
            return self.trace[round % len(self.trace)]
        return self.stream("available", round).random(len(self.sizes)) < self.availability.online

    def drops_out(self, round: int) -> Bools:
        """(N,) who would not answer in a round, if selected."""
        return self.stream("dropout", round).random(len(self.sizes)) < self.availability.dropout


def data_options(config: Config) -> dict[str, object]:
    """What the data section says about the data set itself, less what is for the partition."""
    options = set(options_of(config.data.name))
    given = {name: value for name, value in vars(config.data).items() if name in options and value is not None}
    return given | ({"clients": config.clients} if "clients" in options else {})


def partition_options(config: Config) -> dict[str, object]:
    """What the data section says about the partition: all that is not for the data set."""
    own = {"name", "partition", *options_of(config.data.name)}
    return {name: value for name, value in vars(config.data).items() if name not in own and value is not None}


def read_trace(path: str, clients: int) -> Bools:
    """(rounds, N) from a CSV file of 0 and 1."""
    try:
        table = np.loadtxt(Path(path), delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(f"availability.trace: {path} cannot be read ({error})") from None
    require("availability.trace", path, table.shape[1] == clients, f"{clients} columns, not {table.shape[1]}")
    require("availability.trace", path, bool(np.isin(table, (0, 1)).all()), "0 and 1 only")
    return table.astype(bool)
