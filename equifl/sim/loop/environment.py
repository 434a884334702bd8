"""What a seed determines for all selectors: partition, initial model, batches, availability, dropouts, speeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from equifl._numerics.checks import known, require
from equifl.experiment.config import Availability, Config, make_selector
from equifl.experiment.endpoint import cycle
from equifl.experiment.names import display_name, listed
from equifl.selectors.base import needs
from equifl.signals import Bools, Floats, Ints
from equifl.sim.data import catalogue as data
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.partition import Partition, few_tested, natural_clients, split
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.loop.speed import Clock, read_table
from equifl.sim.models.trained_weights import as_row

STREAMS = (
    "partition",
    "init",
    "batches",
    "selection",
    "available",
    "dropout",
    "examples",
    "layers",
    "speed",
    "jitter",
)


@dataclass(frozen=True, eq=False)
class Environment:
    """Everything random that the selectors of one seed share; each purpose and round has its own random stream."""

    seed: int
    partition: Partition
    sizes: Floats
    availability: Availability
    trace: Bools | None
    most_examples: int | None
    clock: Clock | None = None
    classes: int = 0
    label_counts: Ints | None = None  # (N, classes) training examples, if a selector uses them and they have classes

    @classmethod
    def make(cls, config: Config, dataset: Dataset, seed: int) -> Environment:
        """The environment of a seed, with the data partitioned by a configuration that is `resolved`."""
        assert config.clients is not None
        rng = np.random.default_rng([seed, STREAMS.index("partition")])
        clients, options = config.clients, partition_options(config)
        try:
            parts = split(config.data.partition.kind, dataset, clients, rng=rng, **options)
        except ValueError as error:
            raise in_table("data.partition", options, error, "data") from None
        sizes = np.array([len(ids) for ids in parts.train], np.float64)
        trace = None if config.availability.trace is None else read_trace(config.availability.trace, clients)
        clock = Clock.make(config.speed, config.train, sizes, np.random.default_rng([seed, STREAMS.index("speed")]))
        labels, counts = dataset.y_train, None
        used = any("label_counts" in needs(make_selector(*item)) for item in config.selectors.items())
        if used and labels.dtype.kind in "iu" and labels.ndim == 1:
            counts = np.array([np.bincount(labels[ids], minlength=dataset.outputs) for ids in parts.train])
        return cls(
            seed, parts, sizes, config.availability, trace, config.signal_examples, clock, dataset.outputs, counts
        )

    def stream(self, name: str, *numbers: int) -> np.random.Generator:
        """The generator for one purpose, and one round or client; rounds count from -1."""
        return np.random.default_rng([self.seed, STREAMS.index(name), *(number + 1 for number in numbers)])

    def initial_weights(self, make: Callable[[], nn.Module]) -> Tensor:
        """(d,) the trained weights of a new module, as it initialises them; PyTorch's generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.stream("init").integers(2**63)))
            module = make()
        return as_row(module)

    def batches(self, local: LocalTraining, round: int, client: int) -> Ints:
        """(steps, batch) positions in the training data, the same whoever selected the client."""
        mine = self.partition.train[client]
        order = local.batches(len(mine), self.stream("batches", round, client))
        return np.where(order >= 0, mine[order], -1)

    def layer_seed(self, round: int, client: int) -> int:
        """What the random layers of a client's model (dropout) draw from in a round, whoever selected the client."""
        return int(self.stream("layers", round, client).integers(2**62))

    def signal_examples(self, client: int) -> Ints:
        """The training examples from which a client computes the loss and gradient it reports."""
        mine = self.partition.train[client]
        if self.most_examples is None or len(mine) <= self.most_examples:
            return mine
        return np.sort(self.stream("examples", client).choice(mine, self.most_examples, replace=False))

    def available(self, round: int) -> Bools:
        """(N,) who is online in a round."""
        if self.trace is not None:
            return self.trace[round % len(self.trace)]
        return self.stream("available", round).random(len(self.sizes)) < self.availability.online

    def durations(self, round: int) -> Floats | None:
        """(N,) the seconds that each client would take in a round; None without a clock."""
        return None if self.clock is None else self.clock.durations(round, self.stream("jitter", round))

    def drops_out(self, round: int) -> Bools:
        """(N,) who would not reply in a round, if selected."""
        return self.stream("dropout", round).random(len(self.sizes)) < self.availability.dropout


def resolved(config: Config, dataset: Dataset) -> Config:
    """The configuration with the number of clients, if it has none, from the natural clients of the data set."""
    if config.clients is not None:
        return config
    try:
        ids = natural_clients(dataset, drop_incomplete=bool(config.data.partition.drop_incomplete))
    except ValueError as error:
        raise ValueError(f"data: {error}") from None
    return replace(config, clients=len(ids))


def remarks(config: Config, dataset: Dataset, environments: Iterable[Environment]) -> list[str]:
    """Remarks on the clients for the log, a line each."""
    lines = []
    if dataset.classes is not None and dataset.y_train.ndim == 1:  # elsewhere an example is more than right or wrong
        lines.append(few_tested([np.array([len(ids) for ids in one.partition.test]) for one in environments]))
    if dataset.owners_train is not None and config.data.name == "arrays" and config.data.partition.kind != "natural":
        lines.append("the clients (owners) in the file are not used; data.partition.kind = 'natural' takes them")
    if config.data.partition.drop_incomplete and dataset.owners_train is not None and dataset.owners_test is not None:
        ids = np.union1d(dataset.owners_train, dataset.owners_test)
        dropped = len(ids) - len(natural_clients(dataset, drop_incomplete=True))
        if dropped:
            lines.append(f"{dropped} of {len(ids)} clients dropped: no training or no test examples")
    return [line for line in [*lines, _same_phase(config)] if line]


def _same_phase(config: Config) -> str:
    """Whether all evaluations fall on the same point of the turns of a selector that gives everybody one, in words."""
    turns, every = cycle(config.as_dict()), config.evaluate_every
    rotating = [name for name, table in config.selectors.items() if table.get("class", name) in ("rota", "reshuffle")]
    if not rotating or turns < 2 or every % turns or (config.evaluate_last or 1) >= turns:
        return ""
    names = listed([display_name(name) for name in rotating])
    return (
        f"evaluate_every = {every}: everybody has a turn in {turns} rounds with {names}, so that all evaluations come "
        f"after whole turns; evaluate_last = {turns}, or evaluate_every = {every + 1}, shows it in between, too"
    )


def data_options(config: Config) -> dict[str, object]:
    """The options of the data set in the configuration."""
    own, taken = _given(config.data, "name", "digest", "partition"), data.options_of(config.data.name)
    known(f"data: {config.data.name} option", own, taken)
    also = {"clients": config.clients, "regression": config.task.name == "regression"}
    return own | {key: value for key, value in also.items() if key in taken}


def partition_options(config: Config) -> dict[str, object]:
    """The options of the partition in the configuration."""
    return _given(config.data.partition, "kind")


def in_table(table: str, keys: Iterable[str], error: ValueError, otherwise: str = "") -> ValueError:
    """An error about one of the keys of a table, as the configuration calls it.

    >>> in_table("data.partition", ["alpha"], ValueError("alpha: -1 is not allowed"))
    ValueError('data.partition.alpha: -1 is not allowed')
    """
    where = f"{table}." if str(error).partition(":")[0] in keys else f"{otherwise}: " if otherwise else ""
    return ValueError(f"{where}{error}")


def _given(section: object, *other: str) -> dict[str, object]:
    return {key: value for key, value in vars(section).items() if value is not None and key not in other}


def read_trace(path: str, clients: int) -> Bools:
    """(rounds, N) from a CSV file of 0 and 1."""
    table = read_table("availability.trace", path, clients)
    require("availability.trace", path, bool(np.isin(table, (0, 1)).all()), "0 and 1 only")
    return table.astype(bool)
