"""Sweeps: one configuration with lists of values becomes the experiments of all their combinations.

Parameters of selectors become selectors within one experiment: `subtrunc[lam=0.5]`. Anything else becomes experiments
side by side, each named by its values: `train.lr=0.01`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from equifl._numerics.checks import require
from equifl.experiment.config import Config
from equifl.experiment.from_toml import read, suggestion
from equifl.experiment.run_folder import SWEEP
from equifl.experiment.task_table import score_of

Values = Mapping[str, Sequence[Any]]  # by dotted key, as in --set

_BRACKETS = re.compile(r"([^\[]*)\[(.*)\]")


def parse(options: Iterable[str]) -> dict[str, list[Any]]:
    """From `key=value,value,...` as the command line has it; words need no quotes.

    >>> parse(["train.lr=0.01,0.02", "train.model=mlp,lenet"])
    {'train.lr': [0.01, 0.02], 'train.model': ['mlp', 'lenet']}
    """
    found = {}
    for option in options:
        key, equals, text = option.partition("=")
        form = "key=value,value,..., for instance train.lr=0.01,0.02"
        require("--sweep", option, bool(equals and key.strip() and text.strip()), form)
        require("--sweep", option, key.strip() not in found, f"{key.strip()} once")
        try:
            found[key.strip()] = list(tomllib.loads(f"values = [{text}]")["values"])
        except tomllib.TOMLDecodeError:
            found[key.strip()] = [_word(word.strip()) for word in text.split(",")]
    return found


def _word(text: str) -> Any:
    """A value as TOML has it, or text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def load_points(path: Path | None, overrides: Iterable[str] = (), sweep: Values | None = None) -> dict[str, Config]:
    """The experiments of a file, its `[sweep]` and this one together, by name; without a sweep one, named ''."""
    given = {} if path is None else _flat(read(path).get("sweep", {}))
    return points(lambda more: Config.load(path, [*overrides, *more]), given | dict(sweep or {}))


def points(load: Any, sweep: Values) -> dict[str, Config]:
    """The experiments of all combinations, by name.

    Args:
        load: makes the configuration from a list of overrides, as in --set.
        sweep: values by dotted key.
    """
    for key, values in sweep.items():
        require(f"sweep.{key}", values, isinstance(values, list | tuple) and len(values) > 0, "a list of values")
        require(f"sweep.{key}", list(values), len({json.dumps(v) for v in values}) == len(values), "different values")
        require(
            "sweep", key, key not in ("seeds", "rounds"), "keys that experiments may differ in; not seeds or rounds"
        )
    outer = {key: values for key, values in sweep.items() if not key.startswith("selectors.")}
    inner = {key: values for key, values in sweep.items() if key not in outer}
    found = {}
    for combination in itertools.product(*outer.values()):
        pairs = dict(zip(outer, combination, strict=True))
        config = load([f"{key}={json.dumps(value)}" for key, value in pairs.items()])
        found[_named(pairs)] = _swept_selectors(config, inner)
    scores = dict.fromkeys(score_of(config.as_dict()).title for config in found.values())
    if len(scores) > 1:
        keys = " with ".join(key for key in outer if key.partition(".")[0] == "task")
        raise ValueError(f"sweep: {keys} gives different scores ({', '.join(scores)}); sweep experiments of one score")
    return found


def _swept_selectors(config: Config, sweep: Values) -> Config:
    """The configuration with every combination of their parameters in the place of the selectors that have some."""
    parameters: dict[str, dict[str, Sequence[Any]]] = {}
    for key, values in sweep.items():
        _, _, rest = key.partition(".")
        name, _, parameter = rest.rpartition(".")
        form = "selectors.NAME.PARAMETER"
        require("sweep", key, bool(name and parameter), form)
        if name not in config.selectors:
            raise ValueError(f"sweep.{key}: unknown selector `{name}`{suggestion(name, config.selectors)}")
        parameters.setdefault(name, {})[parameter] = values
    if not parameters:
        return config
    chosen: dict[str, dict[str, Any]] = {}
    for name, options in config.selectors.items():
        own = parameters.get(name)
        if own is None:
            chosen[name] = options
            continue
        for combination in itertools.product(*own.values()):
            pairs = dict(zip(own, combination, strict=True))
            chosen[f"{name}[{_named(pairs)}]"] = {"class": name, **options, **pairs}
    return dataclasses.replace(config, selectors=chosen)


def _named(pairs: Mapping[str, Any]) -> str:
    """Parameters as `parameters_of` reads them: values in JSON, text without quotes if that is clear."""
    shown = {key: json.dumps(value, ensure_ascii=False) for key, value in pairs.items()}
    texts = {key: value for key, value in pairs.items() if isinstance(value, str)}
    plain = {key: text for key, text in texts.items() if _read(f"{key}={text}") == {key: text}}
    return ", ".join(f"{key}={value}" for key, value in (shown | plain).items())


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables with dotted keys: `[sweep.train] lr = [...]` and `[sweep] "train.lr" = [...]` are the same."""
    require("sweep", table, isinstance(table, Mapping), "a table of keys and lists of values")
    found: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        found |= _flat(value, where) if isinstance(value, Mapping) else {where: value}
    return found


def sweep_folders(folder: Path) -> dict[str, str]:
    """The folders of a sweep's experiments, by name; not all of them need be there."""
    try:
        found = json.loads((folder / SWEEP).read_text())["points"]
        places = {str(name): str(place) for name, place in found.items()}
        require(
            "points",
            found,
            all(Path(place).name == place not in ("", "..") for place in places.values()),
            "names of folders in it",
        )
        return places
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / SWEEP}: is damaged ({error}); repair it, or choose another folder") from None


def parameters_of(name: str) -> dict[str, Any]:
    """The swept parameters in a selector's name.

    >>> parameters_of("subtrunc[lam=0.5, train.model=mlp]"), parameters_of("rota")
    ({'lam': 0.5, 'train.model': 'mlp'}, {})
    """
    match = _BRACKETS.fullmatch(name)
    return _read(match[2]) if match else {}


def _read(text: str) -> dict[str, Any]:
    """What `_named` wrote; nothing of other text."""
    found: dict[str, Any] = {}
    while True:
        key, equals, rest = text.partition("=")
        if not equals or not rest:
            return {}
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            value, end = None, -1
        if end < 0 or rest[end : end + 2] not in ("", ", "):  # text without quotes
            value = rest.partition(", ")[0]
            end = len(value)
        found[key] = value
        if end == len(rest):
            return found
        text = rest[end + 2 :]


def with_parameters(name: str, pairs: str) -> str:
    """A selector's name with more parameters.

    >>> with_parameters("subtrunc[lam=0.5]", "train.lr=0.1"), with_parameters("rota", "train.lr=0.1")
    ('subtrunc[lam=0.5, train.lr=0.1]', 'rota[train.lr=0.1]')
    """
    match = _BRACKETS.fullmatch(name)
    return f"{match[1]}[{match[2]}, {pairs}]" if match else f"{name}[{pairs}]"


def baseline_of(name: str, baseline: str, names: Iterable[str]) -> str | None:
    """The baseline that a selector is compared with: that of the same point of the sweep.

    >>> baseline_of("subtrunc[lam=0.5, train.lr=0.1]", "uniform", ["uniform[train.lr=0.1]", "uniform[train.lr=0.2]"])
    'uniform[train.lr=0.1]'
    """
    own = parameters_of(name).items()
    fitting = [other for other in names if other == baseline or other.startswith(f"{baseline}[")]
    fitting = [other for other in fitting if parameters_of(other).items() <= own or other == baseline]
    return max(fitting, key=lambda other: len(parameters_of(other)), default=None)
