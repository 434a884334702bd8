"""The keywords of `simulate` as a configuration, and the objects among them: data, model, selectors and rule.

Longer than 300 lines because every object that a keyword may be gets its name, or its refusal, here.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from torch import nn

from equifl._numerics.checks import require, shown
from equifl.aggregators import Aggregator
from equifl.experiment.config import Availability, Config, Data, Partition, Server, Speed, Train
from equifl.experiment.from_toml import suggestion
from equifl.experiment.named_object import importable_name, own_name
from equifl.experiment.selector_tables import selector_table
from equifl.experiment.task_table import TaskFunction, TaskTable, task_with_names
from equifl.selectors import SELECTORS, Selector
from equifl.sim.data.dataset import Dataset, digest
from equifl.sim.data.own_arrays import dataset_of
from equifl.sim.models.zoo import MakeModule

Table = Mapping[str, Any]

SECTIONS: Mapping[str, type] = {
    "train": Train,
    "server": Server,
    "availability": Availability,
    "speed": Speed,
    "data": Data,
    "partition": Partition,
    "task": TaskTable,
}
_SHORT = {
    "train.model:": "model:",
    "data.partition": "partition",
    "data set:": "data:",
    "server.aggregate": "aggregate",
    "data: clients:": "clients:",
    "data: partition:": "partition:",
}  # as `simulate` calls them


class Settings(TypedDict, total=False):
    """Keywords of `simulate` that are keys of the configuration file, and short forms: model, partition, aggregate."""

    selectors: Mapping[str, Selector | Table] | Sequence[Selector | str]
    data: str | Table | Dataset | Sequence[Any]
    task: str | Table
    partition: str | Table
    model: str | nn.Module | Callable[..., nn.Module]
    rounds: int
    clients: int | None
    per_round: int | Sequence[int]
    seeds: int | Sequence[int]
    signal: str
    introduce: bool
    signal_examples: int | None
    sketch: int | None
    memory_limit: int | None
    evaluate_every: int
    evaluate_last: int | None
    engine: str
    aggregate: str | Table | Aggregator
    train: Table
    server: Table
    availability: Table
    speed: Table


@dataclass(frozen=True)
class Experiment:
    """A configuration, and what no file holds of it.

    Args:
        config: the configuration; objects are in it by name or digest.
        dataset: the data, if they were given as arrays.
        model: makes the model, if that cannot be named.
        functions: the task's `loss` and `score`, those that cannot be named.
        short: keys that were written in a short form: what an error calls them, and what it should.
        unnamed: the keyword of an object by which no folder could know the experiment again, and what to do; or "".
    """

    config: Config
    dataset: Dataset | None
    model: MakeModule | None
    functions: Mapping[str, TaskFunction]
    short: Mapping[str, str]
    unnamed: str

    @property
    def objects(self) -> dict[str, Any]:
        """What a player is given beside the configuration."""
        found: dict[str, Any] = {} if self.model is None else {"model": self.model}
        return found | ({"functions": self.functions} if self.functions else {})

    @property
    def object_keys(self) -> dict[str, str]:
        """Keys of the configuration whose values are such objects, and how they were written."""
        model = {"train.model": "model="} if self.model is not None else {}
        return model | {f"task.{part}": f"task={{{part!r}: ...}}" for part in self.functions}

    @property
    def remark(self) -> str:
        """On the model, for the log; or ""."""
        if not isinstance(self.model, _Copies):
            return ""
        name = self.config.train.model.partition(" ")[0]
        return f"every seed starts from the weights of the {name} that was given; for others, give a function"


def configured(config: Config | None, settings: Mapping[str, Any], others: Sequence[str] = ()) -> Experiment:
    """The experiment that keywords describe: put over `config`, section by section, or over the defaults.

    Args:
        config: what is not given is as there; None = as in a file that leaves it out.
        settings: see `Settings`.
        others: further keywords that `simulate` knows, for suggestions.
    """
    _require_known(settings, others)
    given = {key: value if key in ("data", "model", "selectors") else _plain(value) for key, value in settings.items()}
    short = {long: key for long, key in _SHORT.items() if key.rstrip(":") in given}
    dataset, maker, unnamed, functions = None, None, "", dict[str, TaskFunction]()
    if "task" in given:
        given["task"], functions = task_with_names(given["task"])
    if "data" in given:
        task = given.get("task", {"name": config.task.name} if config else {})
        given["data"], dataset = _data(given["data"], isinstance(task, dict) and task.get("name") == "regression")
    if "partition" in given:
        _put_partition(given, config)
    if "model" in given:
        model, maker, unnamed = _model(given.pop("model"))
        train = given.get("train", {})
        require("model", model, not isinstance(train, dict) or "model" not in train, "once; it is in train as well")
        if isinstance(train, dict):
            given["train"] = {"model_options": {}, **train, "model": model}
    if "aggregate" in given:
        given["server"] = {**given.get("server", {}), "aggregate": given.pop("aggregate")}
    if "selectors" in given:
        given["selectors"] = _selectors(given["selectors"])
    if not given:
        return Experiment(config or Config(), None, None, {}, short, "")
    unnamed = unnamed or next((_unnamed(f"task.{part}", own) for part, own in functions.items()), "")
    table = {} if config is None and "data" in given else (config or Config()).as_dict()
    with as_written(short):
        return Experiment(Config.from_table(_merged(table, given)), dataset, maker, functions, short, unnamed)


@contextmanager
def as_written(short: Mapping[str, str]) -> Iterator[None]:
    """Name keywords in a ValueError as the user wrote them: `model` and not `train.model`."""
    try:
        yield
    except ValueError as error:
        for long, key in short.items():
            if str(error).startswith(long):
                error.args = (key + str(error).removeprefix(long),)
        raise


def known_again(experiment: Experiment) -> Config:
    """The configuration as a run folder keeps it: with a digest of the data, if these were given as arrays.

    Raises:
        ValueError: an object has no name by which the folder could know it again.
    """
    if experiment.unnamed:
        raise ValueError(experiment.unnamed)
    if experiment.dataset is None:
        return experiment.config
    data = dataclasses.replace(experiment.config.data, digest=digest(experiment.dataset))
    return dataclasses.replace(experiment.config, data=data)


def require_digest(config: Config, dataset: Dataset) -> None:
    """Raise ValueError for other data than those whose digest the configuration has."""
    if config.data.digest is not None and config.data.digest != digest(dataset):
        raise ValueError(
            f"data.digest: {config.data.digest!r} is not that of these data, which is {digest(dataset)!r}; give the "
            "data that it is of, or leave it out"
        )


def _require_known(given: Mapping[str, Any], others: Sequence[str]) -> None:
    keys = list(Settings.__annotations__)
    for key in given:
        if key in keys:
            continue
        places = [name for name, section in SECTIONS.items() if key in {f.name for f in dataclasses.fields(section)}]
        written = " or ".join(f"{name}={{{key!r}: ...}}" for name in places)
        raise ValueError(
            f"{key}: unknown keyword; it is in a table: {written}"
            if places
            else f"{key}: unknown keyword{suggestion(key, [*keys, *others])}"
        )


def _merged(table: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Settings put over a configuration: tables key by key, unless a key makes those beside it meaningless."""
    for key in ("train", "server", "availability", "speed"):
        if isinstance(given.get(key), dict):
            replaced = {"steps", "epochs"} if {"steps", "epochs"} & given[key].keys() else set()
            given[key] = {k: v for k, v in table.get(key, {}).items() if k not in replaced} | given[key]
    if isinstance(given.get("data"), dict) and "data" in table:
        there = table["data"] if "name" not in given["data"] else {"partition": table["data"]["partition"]}
        given["data"] = there | given["data"]
        if given["data"]["partition"] in ("natural", {"kind": "natural"}):  # the data say how many there are
            given.setdefault("clients", None)
    return table | given


def _put_partition(given: dict[str, Any], config: Config | None) -> None:
    """`partition=` in its place, within `data`."""
    data = given.setdefault("data", {"name": "digits"} if config is None else {})
    twice = not isinstance(data, dict) or "partition" not in data
    require("partition", given["partition"], twice, "once; it is in data as well")
    partition = given.pop("partition")
    if isinstance(partition, dict) and "kind" not in partition and config is not None:
        partition = dataclasses.asdict(config.data.partition) | partition
    data["partition"] = {"kind": partition} if isinstance(partition, str) else partition


def _data(data: Any, regression: bool) -> tuple[Any, Dataset | None]:
    """The section of the configuration, and the data, if they are no name."""
    table = _plain(data) if isinstance(data, Mapping) else {"name": data}
    if isinstance(data, Mapping) and "name" in data:
        table["name"] = data["name"]
    source = table.get("name", "")
    if isinstance(source, str):
        return table, None
    if isinstance(source, Dataset):
        dataset, own = source, {key for key in table if key not in ("name", "partition", "digest")}
        require("data", sorted(own), not own, "for a Dataset, which is used as it is, a partition alone")
    else:
        forms = "a name, a Dataset, or arrays (x, y), (x, y, owners), (x_train, y_train, x_test, y_test)"
        require("data", type(source).__name__, isinstance(source, list | tuple), forms)
        dataset = dataset_of(source, table.get("standardise"), regression=regression)
    table["name"] = dataset.name
    if dataset.owners_train is not None:
        table.setdefault("partition", {"kind": "natural"})
    return table, dataset


def _model(model: Any) -> tuple[str, MakeModule | None, str]:
    """How the configuration calls a model, what makes it if that is no name, and why a folder would not know it."""
    if isinstance(model, str):
        return model, None, ""
    if isinstance(model, nn.Module):
        return f"{type(model).__name__} (weights {_weights_digest(model)})", _Copies(model), ""
    allowed = "a name, a torch.nn.Module, or a class or function that makes one"
    require("model", model, callable(model), allowed)
    name = importable_name(model)
    if name:
        return name, None, ""
    return own_name(model), model, _unnamed("model", model)


def _unnamed(keyword: str, found: Any) -> str:
    """Why a folder would not know an object again, and what to do."""
    kind = "class or function" if keyword == "model" else "function"
    advice = f"write a {kind} at the top level of a module or notebook, or leave out `out`"
    return f"{keyword}: {own_name(found)} has no name by which a folder could know it again; {advice}"


class _Copies:
    """Gives copies of a module: every seed starts from its weights."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self._module).cpu()


def _weights_digest(module: nn.Module) -> str:
    """What tells a module from others: its layers as they are printed, and its weights."""
    found = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().numpy().tobytes())
    return found.hexdigest()[:8]


def _selectors(selectors: Any) -> Any:
    """The tables of selectors that are given by name or as objects."""
    if isinstance(selectors, list | tuple):
        selectors = _by_name(selectors)
    if not isinstance(selectors, Mapping):
        forms = "objects or tables by name, {'rota': Rota()}; or a list, [Rota()]"
        raise ValueError(f"selectors: {shown(selectors)} is not allowed; allowed: {forms}")
    tables = {}
    for name, one in selectors.items():
        table = selector_table(one, f"selectors.{name}") if isinstance(one, Selector) else _plain(one)
        own = isinstance(one, Selector) and table["class"] == name  # as a file writes it
        tables[str(name)] = {key: value for key, value in table.items() if key != "class"} if own else table
    return tables


def _by_name(selectors: Sequence[Any]) -> dict[str, Any]:
    """A list of names and objects as a table: each by the name of its method."""
    ours = {kind: name for name, kind in SELECTORS.items()}
    found: dict[str, Any] = {}
    for one in selectors:
        kind = one if isinstance(one, type) else type(one)  # a class is refused later, by its own name
        name = one if isinstance(one, str) else ours.get(kind, kind.__name__)
        require("selectors", name, name not in found, "each name once; give a dict with names of your own")
        found[name] = {} if isinstance(one, str) else one
    return found


def _plain(value: Any) -> Any:
    """Values of Python and numpy as a file has them: lists, tables and plain numbers."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
