"""The configuration of an experiment as dataclasses, with every value checked.

The defaults are the experiment that `equifl run` does without a file: `configs/digits.toml` says the same.
A line "`key`: ..." of a docstring is what the configuration reference says of that key.

Longer than 300 lines because all keys, what they mean and what they may be are in one place.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from equifl._numerics.checks import number, require
from equifl.experiment.from_toml import build, read, set_key
from equifl.experiment.rule_tables import open_table, rule_table, separate_rule
from equifl.experiment.selector_tables import make_selector as make_selector
from equifl.experiment.task_table import TaskTable
from equifl.selectors import SELECTORS as SELECTORS

_SIX: Mapping[str, Mapping[str, Any]] = {
    "uniform": {},
    "power_of_choice": {},
    "divfl": {"sample": 10},
    "subtrunc": {"lam": 0.5, "b": 1.1, "sample": 10},
    "unionfl": {"mu": 1.0, "window": 5, "sample": 10},
    "rota": {},
}

_MOST_SEEDS = 100_000  # that a number may stand for
OLD_ENGINES: Mapping[str, str] = {"general": "torch", "fast": "compiled"}

log = logging.getLogger("equifl")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """How the data are divided among the clients; None leaves an option to the kind of partition.

    `kind`: classes, dirichlet, shards, iid, or natural: as the data set says whose each example is.
    `classes_per_client`: classes: how many each client has; None = 3.
    `shards_per_client`: shards: how many each client gets, of examples sorted by class; None = 2.
    `alpha`: dirichlet: the smaller, the fewer classes make up most of a client's data; None = 0.5.
    `least`: dirichlet: training examples that every client has at least; None = 10.
    `sizes`: iid, classes: "equal" or "lognormal" numbers of examples; None = equal.
    `size_sigma`: lognormal sizes: standard deviation of the logarithm; None = 1.
    `drop_incomplete`: natural: leave out clients that have no training or no test examples; None = refuse them.
    """

    kind: str = "classes"
    classes_per_client: int | None = None
    shards_per_client: int | None = None
    alpha: float | None = None
    least: int | None = None
    sizes: str | None = None
    size_sigma: float | None = None
    drop_incomplete: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which data, and how they are divided among the clients; None leaves an option to the data set.

    `name`: a data set of `equifl data list`, or "arrays" for a file of your own.
    `path`: arrays: the npz file.
    `standardise`: arrays: subtract the mean and divide by the deviation of the training split; None = unless they
    are integers.
    `alpha`: synthetic: how much the clients' models differ; None = 1.
    `beta`: synthetic: how much the clients' inputs differ; None = 1.
    `iid`: synthetic: one model and one distribution of inputs for all clients; None = no.
    `largest`: synthetic: examples of a client at most; None = 2000.
    `length`: shakespeare: characters of an example; None = 64.
    `characters`: shakespeare: leave out speakers who say fewer; None = 2000.
    `digest`: what tells these data from others; others are refused. `simulate` writes it for arrays; None = any.
    """

    name: str = "digits"
    path: str | None = None
    standardise: bool | None = None
    alpha: float | None = None
    beta: float | None = None
    iid: bool | None = None
    largest: int | None = None
    length: int | None = None
    characters: int | None = None
    digest: str | None = None
    partition: Partition = field(default_factory=Partition)


# What an override of one key makes meaningless in a file: the options of another partition, steps beside epochs, ...
_REPLACED: Mapping[str, tuple[str, ...]] = {
    "data.partition.kind": tuple(f.name for f in dataclasses.fields(Partition) if f.name != "kind"),
    "train.epochs": ("steps",),
    "train.steps": ("epochs",),
    "train.lr_schedule": ("lr_rounds", "lr_factor"),
}
# Options of partitions that a flat [data] may hold, and no data set takes.
_FLAT = {f.name for f in dataclasses.fields(Partition)} - {f.name for f in dataclasses.fields(Data)} - {"kind"}


@dataclass(frozen=True, kw_only=True)
class Train:
    """What a client does in a round: `steps` batches, or `epochs` passes over its data.

    `model`: lenet, mlp, logistic, linear, transformer, or a torch.nn.Module of your own as "package.module:Class".
    `model_options`: keywords of the model, such as { hidden = 64 }.
    `steps`: batches a round; None = 10, or as many as `epochs` take.
    `epochs`: passes over its data a round, instead of `steps`.
    `batch_size`: examples of a batch.
    `lr`: learning rate of the client's SGD.
    `momentum`: of the client's SGD, from 0 to below 1; it starts anew every round.
    `weight_decay`: of the client's SGD, 0 or more.
    `lr_schedule`: the learning rate over rounds: "constant", in "steps", or falling as a "cosine"; None = constant.
    `lr_rounds`: of "steps": the rounds, counted from 0, from which on `lr` is multiplied by `lr_factor` once more.
    `lr_factor`: of "steps" the factor of each (None = 0.1); of "cosine" the share of `lr` it falls to (None = 0).
    `prox`: mu of FedProx's term mu/2 |w - w_k|^2, with w_k the model that a client received; None = 0.
    `tf32`: allow TF32 matrix products on a GPU, which have three digits instead of seven; None = no.
    """

    model: str = "lenet"
    model_options: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 32
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_schedule: Literal["constant", "steps", "cosine"] | None = None
    lr_rounds: tuple[int, ...] | None = None
    lr_factor: float | None = None
    prox: float | None = None
    tf32: bool | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "steps", 10)
        for name in ("tf32", "prox"):  # false and 0 equal the default, also in older folders
            object.__setattr__(self, name, getattr(self, name) or None)
        if self.lr_schedule == "constant":
            object.__setattr__(self, "lr_schedule", None)
        require("train.epochs", self.epochs, self.steps is None or self.epochs is None, "steps or epochs, not both")
        for name in ("steps", "epochs", "batch_size"):
            value = getattr(self, name)
            require(f"train.{name}", value, value is None or value >= 1, "1 or more")
        number("train.lr", self.lr, "above 0", lambda lr: 0 < lr < math.inf)
        require("train.momentum", self.momentum, 0 <= self.momentum < 1, "from 0 to below 1")
        number("train.weight_decay", self.weight_decay, "0 or more", lambda decay: 0 <= decay < math.inf)
        if self.prox is not None:
            number("train.prox", self.prox, "0 or more", lambda prox: 0 <= prox < math.inf)
        self._check_schedule()

    def _check_schedule(self) -> None:
        kind, factor = self.lr_schedule, self.lr_factor
        rounds = None if self.lr_rounds is None else list(self.lr_rounds)
        fits = (kind == "steps") == (rounds is not None)
        require("train.lr_rounds", rounds, fits, "a list of rounds where lr_schedule is 'steps', nothing elsewhere")
        rising = rounds is None or (len(rounds) > 0 and min(rounds) >= 1 and rounds == sorted(set(rounds)))
        require("train.lr_rounds", rounds, rising, "rounds of 1 or more, in rising order")
        least = factor is None or (kind is not None and (factor > 0 or (kind == "cosine" and factor == 0)))
        allowed = "a number above 0 up to 1 (0 with 'cosine'), with lr_schedule 'steps' or 'cosine'"
        require("train.lr_factor", factor, least and (factor or 0) <= 1, allowed)


@dataclass(frozen=True, kw_only=True)
class Server:
    """How the server makes a new model from the cohort's, and which one is evaluated.

    `aggregate`: the server rule: mean, size, loss, q_fedavg, momentum, memory or selector, or one of your own as
    "package.module:Name"; with parameters a table, such as { class = "memory", q = 1.0, keep = "float16" }.
    `lr`: learning rate of the server: what its step is multiplied by.
    `average_last`: evaluate the mean of this many last global models; 1 = the last one.
    `catch_up`: turns that a client that was absent may be behind the others; None = 1 (see `SignalStore`).
    `guard`: limit what losses and lengths of updates are worth to a client in selection (`equifl.guard`).
    """

    aggregate: str | dict[str, Any] = "mean"
    lr: float = 1.0
    average_last: int = 1
    catch_up: int | None = None
    guard: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "aggregate", rule_table(self.aggregate))
        number("server.lr", self.lr, "above 0", lambda lr: 0 < lr < math.inf)
        require("server.average_last", self.average_last, self.average_last >= 1, "1 or more")
        require("server.catch_up", self.catch_up, self.catch_up is None or self.catch_up >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Availability: each client with probability `online`, or by a `trace` file; and dropouts after selection.

    `online`: the probability that a client is available, each client and each round by itself.
    `trace`: a CSV file of 0 and 1 instead, a line a round, a column a client; when it ends it starts again.
    `dropout`: the probability that a selected client's update is lost; its selection counts.
    """

    online: float = 1.0
    trace: str | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require("availability.online", self.online, 0 < self.online <= 1, "above 0, up to 1")
        require("availability.dropout", self.dropout, 0 <= self.dropout < 1, "from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How many seconds clients take, for selectors that look at it and for time to accuracy; by default no clock.

    A round takes as long as the slowest client that replies. Time is simulated: it does not change what is trained.

    `step_seconds`: the median over clients of the seconds that a local step takes; None = no clock, unless by `trace`.
    `distribution`: of speeds among clients: "lognormal" (None = this), or "exponential".
    `sigma`: of the lognormal distribution; None = 0, all clients alike.
    `jitter`: sigma of a lognormal factor, drawn for each client in each round; None = 0.
    `reply_seconds`: added to each reply, for sending the model and the update; None = 0.
    `trace`: a CSV file of seconds instead, a line a round, a column a client; when it ends it starts again.
    """

    step_seconds: float | None = None
    distribution: Literal["lognormal", "exponential"] | None = None
    sigma: float | None = None
    jitter: float | None = None
    reply_seconds: float | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        step, both = self.step_seconds, self.step_seconds is None or self.trace is None
        if step is not None:
            number("speed.step_seconds", step, "above 0", lambda seconds: 0 < seconds < math.inf)
        require("speed.trace", self.trace, both, "step_seconds or a trace, not both")
        for name in ("sigma", "jitter", "reply_seconds"):
            value = getattr(self, name)
            if value is not None:
                number(f"speed.{name}", value, "0 or more", lambda value: 0 <= value < math.inf)
        for name in ("distribution", "sigma", "jitter", "reply_seconds"):
            value = getattr(self, name)
            require(f"speed.{name}", value, value is None or step is not None, "with speed.step_seconds only")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One experiment: every selector with every seed.

    `rounds`: how many are played.
    `clients`: None = 30; with a natural partition as many as the data set has, unless it makes them (synthetic).
    `per_round`: clients selected in each round; a list gives each round's own, its last entry that of all later ones.
    `seeds`: how many, or a list of which; a run a selector and seed. Runs of one seed share partition, first model,
    batches and availability.
    `signal`: "update" = what a client sent when last selected; "gradient" = computed by every client each round.
    `introduce`: every client reports once before the first round, which the first round's bytes include; false: a
    client is unknown until it was selected. Without effect where `signal` is "gradient".
    `signal_examples`: how many of its examples a client uses for its loss and gradient; None = all.
    `sketch`: length of the sketches that selectors see instead of updates; None = whole updates.
    `memory_limit`: bytes of GPU memory; the runs are then trained in parts that fit; None = no limit.
    `evaluate_every`: rounds between two evaluations; the last round is always evaluated.
    `evaluate_last`: also evaluate each of so many last rounds, for a mean over them; None = the last one alone.
    `engine`: "compiled" needs numba and a plain sequence of layers, "torch" takes any model; "auto" = what works.
    Their older names are "fast" and "general".
    `selectors`: a table a selector with its parameters; its name, or its `class`, says which.

    >>> Config.load(overrides=["rounds=3", "train.lr=0.5", "selectors.subtrunc.lam=0.9"]).train.lr
    0.5
    """

    rounds: int = 60
    clients: int | None = None
    per_round: int | tuple[int, ...] = 5
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    signal: Literal["update", "gradient"] = "update"
    introduce: bool = False
    signal_examples: int | None = None
    sketch: int | None = None
    memory_limit: int | None = None
    evaluate_every: int = 5
    evaluate_last: int | None = None
    engine: str = "auto"
    data: Data = field(default_factory=lambda: Data(partition=Partition(classes_per_client=2)))
    task: TaskTable = field(default_factory=TaskTable)
    train: Train = field(default_factory=Train)
    server: Server = field(default_factory=Server)
    availability: Availability = field(default_factory=Availability)
    speed: Speed = field(default_factory=Speed)
    selectors: dict[str, dict[str, Any]] = field(default_factory=lambda: {k: dict(v) for k, v in _SIX.items()})

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", OLD_ENGINES.get(self.engine, self.engine))
        if self.clients is None and (self.data.partition.kind != "natural" or self.data.name == "synthetic"):
            object.__setattr__(self, "clients", 30)
        for name in ("rounds", "clients", "evaluate_every", "evaluate_last", "signal_examples", "memory_limit"):
            require(name, getattr(self, name), getattr(self, name) is None or getattr(self, name) >= 1, "1 or more")
        each = self.per_round if isinstance(self.per_round, tuple) else (self.per_round,)
        given = list(each) if len(each) != 1 else self.per_round
        require("per_round", given, len(each) > 0 and min(each) >= 1, "1 or more")
        enough = self.clients is None or max(each) <= self.clients
        require("per_round", given, enough, f"at most clients, which is {self.clients}")
        seeds_ok = len(self.seeds) > 0 and len(set(self.seeds)) == len(self.seeds) and min(self.seeds) >= 0
        require("seeds", list(self.seeds), seeds_ok, "different numbers of 0 or more, at least one")
        require("sketch", self.sketch, self.sketch is None or 1 <= self.sketch < 2**31, "1 or more, below 2**31")
        require("selectors", self.selectors, len(self.selectors) > 0, "at least one")
        for name, options in self.selectors.items():
            fits = name.isprintable() and 0 < len(name) <= 100  # it goes into records, tables and pages
            require("selectors", name, fits, "names of 1 to 100 printable characters")
            candidates = getattr(make_selector(name, options), "candidates", None)
            enough = not isinstance(candidates, int) or candidates >= self.largest_cohort
            allowed = f"at least per_round, which is {self.largest_cohort}"
            require(f"selectors.{name}.candidates", candidates, enough, allowed)

    def evaluates(self, round: int) -> bool:
        """Whether the model is evaluated after a round, counted from 0."""
        return (round + 1) % self.evaluate_every == 0 or round >= self.rounds - (self.evaluate_last or 1)

    def cohort_size(self, round: int) -> int:
        """K_t: how many clients are selected in a round, counted from 0."""
        each = (self.per_round,) if isinstance(self.per_round, int) else self.per_round
        return each[min(round, len(each) - 1)]

    @property
    def largest_cohort(self) -> int:
        """The most clients that any round selects."""
        return self.per_round if isinstance(self.per_round, int) else max(self.per_round)

    @classmethod
    def load(cls, path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
        """From a TOML file, or the defaults, with `key=value` overrides: keys dotted, values as in TOML.

        What a file leaves out is as in `Config()`; a word needs no quotes in an override. A `[sweep]` is left to
        `equifl.experiment.sweep`.
        """
        unset: dict[str, Any] = {"partition": {}}
        table = {"selectors": cls().selectors, "data": unset} | ({} if path is None else read(path))
        table.pop("sweep", None)
        for override in overrides:
            if override.strip().startswith("data.partition"):  # and finds the options of a flat file in their table
                separate_partition(table["data"])
            if override.strip().startswith("server.aggregate."):
                open_table(table.get("server"))
            set_key(table, override, _REPLACED)
        separate_partition(table["data"])
        separate_rule(table.get("server"))
        _list_seeds(table)
        partition = unset["partition"]
        if table["data"] is unset and isinstance(partition, dict) and partition.get("kind", "classes") == "classes":
            partition.setdefault("classes_per_client", 2)  # which no other partition takes
        return build(cls, table, "")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Config:
        """From a table as TOML gives it."""
        if isinstance(table.get("data"), dict):
            table = {**table, "data": dict(table["data"])}
            separate_partition(table["data"])
        if isinstance(table.get("server"), dict):
            table = {**table, "server": dict(table["server"])}
            separate_rule(table["server"])
        table = dict(table)
        _list_seeds(table)
        return build(cls, table, "")

    def overridden(self, overrides: Iterable[str]) -> Config:
        """This configuration with `key=value` overrides, as in `load`."""
        table = self.as_dict()
        for override in overrides:
            if override.strip().startswith("server.aggregate."):
                open_table(table["server"])
            set_key(table, override, _REPLACED)
        return Config.from_table(table)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return dataclasses.asdict(self) | {"seeds": list(self.seeds)}


def _list_seeds(table: dict[str, Any]) -> None:
    """Write a number of seeds as the list that it stands for, in place: 3 as [0, 1, 2]."""
    count = table.get("seeds")
    if type(count) is int:
        require("seeds", count, 1 <= count <= _MOST_SEEDS, f"1 to {_MOST_SEEDS:,}, or a list of seeds")
        table["seeds"] = list(range(count))


def separate_partition(data: Any, *, stored: bool = False) -> None:
    """Give the partition of a data section a table of its own, in place; without one nothing changes.

    Earlier versions had `partition = "dirichlet", alpha = 0.1` among the options of the data set: that is read with a
    warning, and an alpha that both could take is refused. A kind alone stands for a table.

    Args:
        data: the section, as TOML or JSON gives it.
        stored: it is that of a run: no warning, and the alpha that both could take was the data set's.
    """
    kind = data.get("partition", {}) if isinstance(data, dict) else None
    if not isinstance(kind, str | dict):
        return  # rejected later, as any wrong type
    both = kind == "dirichlet" and data.get("name") == "synthetic" and data.get("alpha") is not None
    if both and not stored:
        raise ValueError(
            f"data.alpha: {data['alpha']!r} could be meant for the data set 'synthetic' or for the partition "
            "'dirichlet'; write data.partition.kind = 'dirichlet', and data.alpha or data.partition.alpha"
        )
    flat = [key for key in data if key in _FLAT or (key == "alpha" and kind == "dirichlet" and not both)]
    if isinstance(kind, str) or flat:
        table = {"kind": kind} if isinstance(kind, str) else kind
        data.pop("partition", None)  # and put last, where the order of `Data` has it: orders of runs are compared
        data["partition"] = {**table, **{key: data.pop(key) for key in flat}}
    if flat and not stored:
        form = ", ".join(f"{key} = {json.dumps(value, default=str)}" for key, value in data["partition"].items())
        log.warning("data: the partition is a table of its own now; write data.partition = { %s }", form)
