"""Docstrings as reStructuredText: they are plain text with `code`, so nothing else may be taken for markup."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.inspect import stringify_signature

_SECTIONS: Any = Config(napoleon_numpy_docstring=False, napoleon_use_ivar=True)
_FIELD = re.compile(r"\s*(:(param|ivar|raises?|returns?|yields?|rtype|type)\b[^:]*:|\.\. )")
_EMPHASIS = re.compile(r"(?<![\w*`])\*(?=[^\s*])((?:(?!\n\s*\n)[^*`])+?)(?<=\S)\*(?![\w*])")  # *a title*
_STAR = "\x01"  # for the stars of an emphasis, while all others are escaped
_ITEM = re.compile(r"\s*(\d+\.|-) ")


def process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make fields of the sections (Args, Attributes), and valid reStructuredText of the rest, in place.

    Of a property napoleon would take "The loss: as ..." for a type and a description; it is told that it is a method.
    """
    kind: Any = "method" if what in ("property", "attribute", "data") else what
    lines[:] = GoogleDocstring(lines, _SECTIONS, app, kind, name, obj, options).lines()
    lines[:] = _EMPHASIS.sub(rf"{_STAR}\1{_STAR}", "\n".join(lines)).split("\n")
    found: list[str] = []
    example, block, blank, base = False, None, True, 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            example, blank = False, True
            found.append("")
            continue
        if block is not None and indent < block:
            block = None
        example = example or line.lstrip().startswith(">>>")
        if block is None and not example and blank and indent > base and found and not _ITEM.match(line):
            found += [" " * base + "::", ""]  # an indented paragraph is code
            block = indent
        if block is None and not example:
            base = indent if not _FIELD.match(line) else indent + 3
        found.append(line if example or block is not None else _line(line))
        blank = False
    lines[:] = [line.replace(_STAR, "*") for line in found]


def _line(line: str) -> str:
    field = _FIELD.match(line)
    item = _ITEM.match(line)
    start = (field or item).end() if field or item else 0  # type: ignore[union-attr]
    return line[:start] + escape(line[start:])


def escape(text: str) -> str:
    r"""The text with `code` as literals, and all other markup taken literally.

    >>> print(escape("sum over S of |u_i|^2, see `Rota`"))
    sum over S of \|u\_i\|^2, see ``Rota``
    """
    parts = re.split(r"`([^`]+)`", text)
    plain = (re.sub(r"([\\*|_`])", r"\\\1", part) for part in parts[::2])
    code = [f"``{part}``" for part in parts[1::2]] + [""]
    joined = "".join(a + b for a, b in zip(plain, code, strict=True))
    return re.sub(r"``(?=\w)(?<=[^\s(]``)", r"``\\ ", joined)


def process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """The signature as it is written, with the names of types as the code has them."""
    if what not in ("class", "function", "method") or signature is None:
        return None
    try:
        written = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    if what == "method":
        written = written.replace(parameters=[p for p in written.parameters.values() if p.name not in ("self", "cls")])
    parameters, arrow, result = stringify_signature(written).rpartition(" -> ")
    if not arrow or what == "class":
        return (parameters or result), ""
    return parameters, result
