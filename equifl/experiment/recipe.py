"""How to get the same numbers again: a run's configuration as the TOML that starts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_toml(config: Mapping[str, Any]) -> str:
    """A configuration in TOML, without what was left at None; `equifl run` reads it back to the same.

    >>> print(as_toml({"rounds": 2, "path": None, "train": {"lr": 0.1}, "selectors": {"mine": {"class": "a:B"}}}))
    rounds = 2
    <BLANKLINE>
    [train]
    lr = 0.1
    <BLANKLINE>
    [selectors]
    mine = { class = "a:B" }
    """
    lines = _lines({key: value for key, value in config.items() if not isinstance(value, Mapping)})
    for key, value in config.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(key)}]", *_lines(value)]
    return "\n".join(lines)


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items() if value is not None]


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(_lines(value))
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """Within quotes TOML escapes as JSON does, but takes neither DEL as it is nor characters in two halves."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
