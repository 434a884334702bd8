"""Records as lines of text: sealed by a checksum, and checked field by field when they are read back."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from equifl._numerics.checks import integer, is_number, require
from equifl.experiment.config import OLD_ENGINES, separate_partition
from equifl.experiment.rule_tables import separate_rule
from equifl.experiment.task_table import score_of

Key: TypeAlias = tuple[int, str, int]  # round, selector and seed

_SEAL = re.compile(rb', "crc": "([0-9a-f]{8})"}\n')
_SEAL_SIZE = len(', "crc": "01234567"}\n')


def sealed(text: str) -> bytes:
    r"""A JSON object as a line, with a last field `crc`: the CRC-32 of all bytes before it.

    >>> sealed('{"round": 0}')
    b'{"round": 0, "crc": "5a34bd24"}\n'
    """
    body = text.rstrip()[:-1].rstrip().encode()
    return body + f', "crc": "{zlib.crc32(body):08x}"}}\n'.encode()


def unsealed(text: bytes, *, required: bool) -> Any:
    """What `sealed` was given, as a value; ValueError if it is not what was written.

    Args:
        text: the whole line.
        required: whether a text without a checksum is refused; earlier versions wrote none.
    """
    seal = _SEAL.fullmatch(text[-_SEAL_SIZE:])
    if seal is not None:
        text = text[:-_SEAL_SIZE]
        if zlib.crc32(text) != int(seal[1], 16):
            raise ValueError("its checksum does not match")
        text += b"}"
    elif required:
        raise ValueError("it has no checksum")
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def record_line(row: Mapping[str, Any]) -> bytes:
    """A record as it is written, sealed; it has at least a round, a selector and a seed."""
    integer("round", row.get("round"), least=0)
    integer("seed", row.get("seed"), least=0)
    require("selector", row.get("selector"), isinstance(row.get("selector"), str), "a name")
    return sealed(as_json(row, where=f" in round {row['round']}, {row['selector']}, seed {row['seed']}"))


def as_json(value: Mapping[str, Any], *, indent: int | None = None, where: str = "") -> str:
    """A value as JSON, numpy's values as plain ones; a ValueError names what has no form in JSON, nan among it."""
    try:
        return json.dumps(value, allow_nan=False, default=_plain, indent=indent)
    except (TypeError, ValueError) as error:
        wrong = [f"{name}{where}: {leaf!r} is not allowed" for name, leaf in leaves(value) if not _writable(leaf)]
        allowed = "text, integers, finite numbers, None, and lists and mappings of these"
        raise ValueError(f"{wrong[0] if wrong else f'{error}{where}'}; allowed: {allowed}") from None


def _plain(value: Any) -> Any:
    """A value of numpy, or a mapping, as plain JSON types."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _writable(leaf: Any) -> bool:
    if isinstance(leaf, float):
        return math.isfinite(leaf)
    return leaf is None or isinstance(leaf, str | int | list | tuple | Mapping)


def record_keys(config: Mapping[str, Any]) -> Iterator[Key]:
    """Round, selector and seed of every record of an experiment, in their order; a live federation has no last one."""
    rounds = count() if config["rounds"] is None else range(config["rounds"])
    return ((round, name, seed) for round in rounds for name in config["selectors"] for seed in config["seeds"])


def read_record(line: bytes, key: Key | None, config: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """The record on a line, if it is the one of `key` and whole; else ValueError, which says what is wrong with it."""
    try:
        record = unsealed(line, required=required)
        _check(record, _KEY)
    except ValueError as error:
        raise ValueError(f"is damaged ({error})") from None
    found = record["round"], record["selector"], record["seed"]
    if found != key:
        named = "round {}, {}, seed {}".format
        raise ValueError(f"is of {named(*found)}; expected: {named(*key) if key else 'the end of the file'}")
    try:
        _check_fields(record, config)
    except ValueError as error:
        raise ValueError(f"is damaged ({error})") from None
    return record


def check_stored(stored: Any, newest: int) -> None:
    """Raise ValueError unless a stored configuration has what records, tables and reports need of it.

    What earlier versions stored otherwise is brought to today's form, in place.
    """
    _check(stored, {"config": _TABLE, "made_with": _TABLE})
    if "format" in stored:
        _check(stored, {"format": (lambda value: value == newest, f"{newest}, which this version can read")})
    _check({"versions": {}} | stored["made_with"], {"versions": _TABLE})
    config = stored["config"]
    separate_partition(config.get("data"), stored=True)
    separate_rule(config.get("server"), stored=True)
    _check(config, _CONFIG)
    _check({"task": {}} | config, {"task": _TEXTS})
    _check({"engine": "", "evaluate_every": 1, "evaluate_last": None} | config, _OPTIONAL)
    if "signal" in config and "introduce" not in config:  # earlier versions always did
        stored["config"] = config = _inserted(config, after="signal", introduce=True)
    if "engine" in config:
        config["engine"] = OLD_ENGINES.get(config["engine"], config["engine"])
    _check(config["data"], {"name": _TEXT} | ({"partition": _TABLE} if "partition" in config["data"] else {}))
    for name, value in leaves(config):
        if (isinstance(value, float) and not math.isfinite(value)) or (value is None and name.endswith("]")):
            raise ValueError(f"`{name}` is {value}")


def _inserted(table: Mapping[str, Any], *, after: str, **new: Any) -> dict[str, Any]:
    """The table with new keys where today's order has them: orders of runs are compared."""
    place = list(table).index(after) + 1
    items = list(table.items())
    return dict([*items[:place], *new.items(), *items[place:]])


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The single values within lists and mappings, each with its dotted name."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value:
        for index, part in enumerate(value):
            yield from leaves(part, f"{name}[{index}]")
    else:
        yield name, value


_Check: TypeAlias = tuple[Callable[[Any], bool], str]  # whether a value is right, and what is expected, in words


def _check(table: Any, wanted: Mapping[str, _Check]) -> None:
    """Raise ValueError unless each of these fields is there and right."""
    for name, (right, expected) in wanted.items():
        if not isinstance(table, dict) or name not in table:
            raise ValueError(f"no `{name}`")
        if not right(table[name]):
            shown = repr(table[name])
            raise ValueError(f"`{name}` is {shown[:40]}{'...' * (len(shown) > 40)}, expected {expected}")


def _check_fields(record: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    score = score_of(config)
    clients, every, evaluated = config["clients"], config.get("evaluate_every"), score.key in record
    _check(record, _ALWAYS)
    _check(record, {name: check for name, check in _SOMETIMES.items() if name in record})
    if every is not None and config["rounds"] is not None:
        last = config["rounds"] - (config.get("evaluate_last") or 1)
        due = (record["round"] + 1) % every == 0 or record["round"] >= last
        if due != evaluated:
            found = f"it has {'an' if score.percent else 'a'} `{score.key}`, and no evaluation was due"
            raise ValueError(f"it has no `{score.key}`" if due else found)
    if evaluated:
        _check(record, {**(_IN_PERCENT if score.percent else _SCORED), **_EVALUATED})
    if clients is not None:
        for name in ("client_loss", "test_classes"):
            if name in record and len(record[name]) != clients:
                raise ValueError(f"`{name}` is of {len(record[name])} clients, expected {clients}")
        if max(record["cohort"], default=0) >= clients:
            raise ValueError(f"`cohort` has client {max(record['cohort'])} of {clients}")
        if evaluated and len(record[score.of_clients]) != clients:
            count = len(record[score.of_clients])
            raise ValueError(f"`{score.of_clients}` has {count} numbers for {clients} clients")


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _finite(value: Any) -> bool:
    return is_number(value) and abs(value) < 2**1000  # an integer may be larger than any float


def _percent(value: Any) -> bool:
    return _finite(value) and -1e-6 <= value <= 100 + 1e-6


def _known_and(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(values: Any) -> bool:
        known = [value for value in values if value is not None] if isinstance(values, list) else []
        return len(known) > 0 and all(map(right, known))

    return check


def _different(values: Any) -> bool:
    return isinstance(values, list) and all(map(_natural, values)) and len(set(values)) == len(values)


def _numbers(values: Any) -> bool:
    return isinstance(values, dict) and all(map(_finite, values.values()))


_NATURAL: _Check = (_natural, "an integer of 0 or more")
_TEXT: _Check = (lambda value: isinstance(value, str), "text")
_TABLE: _Check = (lambda value: isinstance(value, dict), "a table")
_TEXTS: _Check = (
    lambda value: isinstance(value, dict) and all(text is None or isinstance(text, str) for text in value.values()),
    "a table of text",
)
_NUMBER: _Check = (_finite, "a number")
_POINTS: _Check = (_percent, "a number from 0 to 100")
_ONE_OR_MORE_OR_NONE: _Check = (
    lambda value: value is None or (_natural(value) and value > 0),
    "an integer of 1 or more",
)

_OPTIONAL: Mapping[str, _Check] = {
    "engine": _TEXT,
    "evaluate_every": _ONE_OR_MORE_OR_NONE,
    "evaluate_last": _ONE_OR_MORE_OR_NONE,
}

_KEY: Mapping[str, _Check] = {"round": _NATURAL, "selector": _TEXT, "seed": _NATURAL}
_ALWAYS: Mapping[str, _Check] = {
    "cohort": (_different, "a list of different clients"),
    "local_loss": (lambda value: value is None or _finite(value), "a number"),
    "bytes_down": _NATURAL,
    "bytes_up": _NATURAL,
}
_SOMETIMES: Mapping[str, _Check] = {
    "objective": (lambda value: value is None or _numbers(value), "a table of numbers"),
    "client_loss": (lambda value: isinstance(value, list) and all(map(_finite, value)), "a list of numbers"),
    "class_accuracy": (_known_and(_percent), "a list of numbers from 0 to 100"),
    "test_classes": (
        lambda value: (
            isinstance(value, list) and all(isinstance(row, list) and all(map(_natural, row)) for row in value)
        ),
        "a list of lists of integers",
    ),
    "saturated_at": (lambda value: value is None or _natural(value), "an integer of 0 or more"),
}
_IN_PERCENT: Mapping[str, _Check] = {
    "accuracy": _POINTS,
    "dissimilarity": _POINTS,
    "worst10": _POINTS,
    "client_accuracy": (_known_and(_percent), "a list of numbers from 0 to 100"),
}
_SCORED: Mapping[str, _Check] = {
    "score": _NUMBER,
    "dissimilarity": (lambda value: _finite(value) and value >= 0, "a number of 0 or more"),
    "worst10": _NUMBER,
    "client_score": (_known_and(_finite), "a list of numbers"),
}
_EVALUATED: Mapping[str, _Check] = {
    "participation": (lambda value: _numbers(value) and "gini" in value, "a table of numbers with `gini`"),
}
_CONFIG: Mapping[str, _Check] = {
    "rounds": _ONE_OR_MORE_OR_NONE,
    "clients": _ONE_OR_MORE_OR_NONE,
    "seeds": (lambda value: _different(value) and len(value) > 0, "a list of different integers, at least one"),
    "selectors": (
        lambda value: isinstance(value, dict) and len(value) > 0 and all(isinstance(v, dict) for v in value.values()),
        "a table of tables, at least one",
    ),
    "data": _TABLE,
}
