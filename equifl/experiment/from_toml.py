"""TOML to dataclasses: files, `key=value` overrides, values of the annotated types, unknown keys with a suggestion."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from equifl._numerics.checks import require


def read(path: Path) -> dict[str, Any]:
    """The table that a TOML file holds."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # not TOML, or not even text
        raise ValueError(f"{path}: is not TOML ({error})") from None


def set_key(table: dict[str, Any], override: str, replaced: Mapping[str, tuple[str, ...]]) -> None:
    """Apply `key=value` in place; what `replaced` names beside a key goes when that is set."""
    key, equals, text = override.partition("=")
    require("--set", override, bool(equals and key.strip()), "key=value, for instance train.lr=0.1")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    value = parsed["value"] if len(parsed) == 1 else text.strip()
    *path, last = key.strip().split(".")
    for part in path:
        table = table.setdefault(part, {})
        require("--set", override, isinstance(table, dict), f"a key that is a table where {part} stands")
    table[last] = value
    for other in replaced.get(key.strip(), ()):
        table.pop(other, None)


def build(cls: type, table: Mapping[str, Any], path: str) -> Any:
    """An instance of a dataclass from a table, each value of the annotated type."""
    hints = typing.get_type_hints(cls)
    require_known(table, hints, path)
    values = {}
    for name, value in table.items():
        where = f"{path}.{name}" if path else name
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            require(where, value, isinstance(value, dict), "a table")
            values[name] = build(typing.cast(type, hint), value, where)
        else:
            values[name] = typed(value, hint, where)
    return cls(**values)


def typed(value: Any, hint: Any, where: str) -> Any:
    """A value of the annotated type: an integer is a number, too; nothing else is converted."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option)
        if origin is Literal and value in typing.get_args(option):
            return value
        if origin is tuple and isinstance(value, list) and all(type(item) is int for item in value):
            return tuple(value)
        if origin is dict and isinstance(value, dict):
            return value
        if option is float and type(value) is int:
            return float(value)
        if origin is None and type(value) is option:
            return value
    allowed = " or ".join(filter(None, map(_kind, options)))
    raise ValueError(f"{where}: {value!r} is not allowed; allowed: {allowed}")


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
            where = f"{path}.{key}" if path else key
            raise ValueError(f"{where}: unknown key{suggestion(key, known)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """What was probably meant, or all that is known: the end of an error."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(known) or 'none'}"
