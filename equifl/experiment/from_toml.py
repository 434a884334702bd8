"""TOML to dataclasses: files, `key=value` overrides, values of the annotated types, unknown keys with a suggestion."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from equifl._numerics.checks import brief, require, shown

_LONGEST = 2**20  # characters of a file
_DEEPEST = 50  # tables and lists within each other, and parts of a dotted key
# A dotted key of so many parts: tomllib takes time in proportion to their square.
_DOTTED = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_DEEPEST}}}""")
_DATES = (datetime.date, datetime.time)


def read(path: Path) -> dict[str, Any]:
    """The table that a TOML file holds."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)  # and not what has no end, as /dev/zero
        return _parsed(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # not TOML, or not even text
        raise ValueError(f"{path}: is not TOML ({brief(error)})") from None


def _parsed(text: str) -> dict[str, Any]:
    """The table that TOML stands for; ValueError for what is not TOML, too long or nested too deeply."""
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST:,} characters, which no configuration needs")
    if _DOTTED.search(text):
        raise ValueError(f"a key of more than {_DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"brackets more than {_DEEPEST} deep") from None


def set_key(table: dict[str, Any], override: str, replaced: Mapping[str, tuple[str, ...]]) -> None:
    """Apply `key=value` in place; what `replaced` names beside a key goes when that is set."""
    key, equals, text = override.partition("=")
    require("--set", override, bool(equals and key.strip()), "key=value, for instance train.lr=0.1")
    try:
        parsed = _parsed(f"value = {text}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    except ValueError as error:
        raise ValueError(f"--set {brief(key)}: {shown(text)} cannot be read ({error})") from None
    value = parsed["value"] if len(parsed) == 1 else text.strip()
    *path, last = key.strip().split(".")
    require("--set", override, len(path) < _DEEPEST, f"a key of up to {_DEEPEST} parts")
    for part in path:
        table = table.setdefault(part, {})
        require("--set", override, isinstance(table, dict), f"a key that is a table where {brief(part)} stands")
    table[last] = value
    for other in replaced.get(key.strip(), ()):
        table.pop(other, None)


def build(cls: type, table: Mapping[str, Any], path: str) -> Any:
    """An instance of a dataclass from a table, each value of the annotated type."""
    every = typing.get_type_hints(cls)
    hints = {f.name: every[f.name] for f in dataclasses.fields(cls)}
    require_known(table, hints, path)
    values = {}
    for name, value in table.items():
        where = f"{path}.{name}" if path else name
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            if isinstance(value, str) and hasattr(hint, "short"):  # this key alone stands for the table
                value = {hint.short: value}
            require(where, value, isinstance(value, dict), "a table")
            values[name] = build(typing.cast(type, hint), value, where)
        else:
            values[name] = typed(value, hint, where)
    return cls(**values)


def typed(value: Any, hint: Any, where: str) -> Any:
    """A value of the annotated type: an integer is a number, too; nothing else is converted."""
    _require_plain(value, where, _DEEPEST)
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)  # the second if a Literal is part of it
    options = typing.get_args(hint) if union else (hint,)
    for option in options:
        origin = typing.get_origin(option)
        if origin is Literal and value in typing.get_args(option):
            return value
        if origin is tuple and isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return tuple(value)
        if origin is dict and isinstance(value, dict):
            return value
        if option is float and type(value) is int:
            return float(value)
        if origin is None and type(value) is option:
            return value + 0.0 if option is float else value  # -0.0 is 0.0
    allowed = " or ".join(filter(None, map(_kind, options)))
    raise ValueError(f"{where}: {shown(value)} is not allowed; allowed: {allowed}")


def _require_plain(value: Any, where: str, deeper: int) -> None:
    """Raise ValueError for what TOML has and no run folder holds: dates, integers of over 64 bits, deep nesting."""
    if isinstance(value, dict | list):
        require(where, value, deeper > 0, f"tables and lists up to {_DEEPEST} deep")
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            _require_plain(part, f"{where}.{brief(key)}" if isinstance(value, dict) else where, deeper - 1)
    elif type(value) is int:
        require(where, value, -(2**63) <= value < 2**63, "integers of up to 64 bits")
    else:
        require(where, str(value), not isinstance(value, _DATES), "no dates and times; text is in quotes")


def _kind(hint: Any) -> str | None:
    """What a file may say where a type is annotated, in words; None if it has no word for it."""
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
    return (words | {tuple: "a list of integers", dict: "a table"}).get(typing.get_origin(hint) or hint)


def require_known(given: Iterable[str], known: Iterable[str], path: str) -> None:
    """Raise ValueError for an unknown key, with the nearest that is."""
    for key in given:
        if key not in known:
            where = f"{path}.{brief(key)}" if path else brief(key)
            raise ValueError(f"{where}: unknown key{suggestion(key, known)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """What was probably meant, or all that is known: the end of an error."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(known) or 'none'}"
