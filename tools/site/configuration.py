"""The configuration reference, from the dataclasses: every key with its type, default and meaning."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from equifl.experiment.config import Config

HEAD = """# Configuration

Every key of the configuration file, as the code has it. The same names are keywords of `simulate`, and keys of `--set`
and `--sweep`, dotted. [The simulator](../simulator.md) shows them in a file, and says what they do to an experiment.
"""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a section: what the table has of it."""

    name: str
    type: str
    default: str
    meaning: str


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD]
    for section, about, keys in sections():
        parts.append(f"## `[{section}]`\n\n{about}\n" if section else "## At the top\n")
        parts.append("| key | type | default | meaning |\n|---|---|---|---|")
        cells = ((f"`{key.name}`", _code(key.type), _code(key.default), key.meaning) for key in keys)
        parts += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]
        parts.append("")
    return "\n".join(parts)


def sections(kind: type = Config, default: Any = None, name: str = "") -> Iterator[tuple[str, str, list[Key]]]:
    """Name, summary and keys of every section, the outer one first."""
    default = kind() if default is None else default
    text = inspect.getdoc(kind) or ""
    said = meanings(text)
    plain, inner = [], []
    for field in dataclasses.fields(kind):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            inner.append((type(value), value, f"{name}.{field.name}".lstrip(".")))
        else:
            plain.append(Key(field.name, str(field.type), _default(value), said.get(field.name, "")))
    yield name, text.split("\n\n")[0].replace("\n", " "), plain
    for each in inner:
        yield from sections(*each)


def _default(value: Any) -> str:
    """As a TOML file writes it; nothing for None, and for tables, which have pages of their own."""
    return "" if value is None or isinstance(value, dict) else json.dumps(value)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def meanings(docstring: str) -> dict[str, str]:
    """What a docstring says of keys, in lines that begin with the key: "`lr`: the step size".

    >>> meanings(chr(10).join(["A section.", "", "`lr`: the step", "size.", "`steps`: how many.", "", "More."]))
    {'lr': 'the step size.', 'steps': 'how many.'}
    """
    found = re.findall(r"^`(\w+)`: (.*?)(?=^`\w+`: |^\s*$|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return {key: " ".join(text.split()) for key, text in found}
