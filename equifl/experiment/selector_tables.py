"""Selectors to and from the tables of a configuration."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from equifl._numerics.checks import require, shown
from equifl.experiment.from_toml import require_known, suggestion, typed
from equifl.experiment.named_object import named_object
from equifl.selectors import SELECTORS, Selector

_TOML = (bool, int, float, str, list, dict)  # the types of a file; from Python a selector may be given anything


def selector_table(selector: Selector, where: str = "selectors") -> dict[str, Any]:
    """The section that makes this selector: its class, and the parameters that are not at their defaults.

    Args:
        selector: an object of a dataclass, or of a class that keeps nothing.
        where: its key, for errors.

    >>> from equifl import SubTrunc, UnionFL
    >>> selector_table(UnionFL(mu=2.0, inner=SubTrunc(lam=0.9)))
    {'class': 'unionfl', 'mu': 2.0, 'inner': {'class': 'subtrunc', 'lam': 0.9}}
    """
    kind = type(selector)
    if isinstance(selector, type):
        raise ValueError(f"{where}: is the class {selector.__name__}; allowed: an object, {selector.__name__}()")
    name = {cls: name for name, cls in SELECTORS.items()}.get(kind, f"{kind.__module__}:{kind.__qualname__}")
    if not dataclasses.is_dataclass(selector) and getattr(selector, "__dict__", {}):
        raise ValueError(
            f"{where}: {shown(selector)} is not allowed; allowed: an object of a dataclass, or a table such as "
            f"{{'class': '{name}'}} with its parameters"
        )
    if "." in kind.__qualname__:
        raise ValueError(
            f"{where}: {kind.__qualname__} is within another class or function, where no folder could find it again; "
            "move it to the top level"
        )
    given: dict[str, Any] = {}
    if dataclasses.is_dataclass(selector):
        given = {f.name: getattr(selector, f.name) for f in dataclasses.fields(selector) if f.init}
    default = kind() if kind in SELECTORS.values() else None
    changed = {key: value for key, value in given.items() if default is None or value != getattr(default, key)}
    tables = {
        key: selector_table(value, f"{where}.{key}") if isinstance(value, Selector) else value
        for key, value in changed.items()
    }
    return {"class": name, **tables}


def make_selector(name: str, options: Mapping[str, Any], path: str = "selectors") -> Selector:
    """A selector from its section: by its name, or what `class` says: one of ours or "package.module:Name"."""
    where = f"{path}.{name}"
    require(where, options, isinstance(options, Mapping), "a table")
    cls = _selector_class(name, options, where)
    parameters = {key: value for key, value in options.items() if key != "class"}
    if dataclasses.is_dataclass(cls):
        require_known(parameters, [f.name for f in dataclasses.fields(cls) if f.init], where)
    if isinstance(parameters.get("inner"), Mapping):
        parameters["inner"] = make_selector("inner", parameters["inner"], where)
    if cls in SELECTORS.values():
        hints = typing.get_type_hints(cls)
        given = {key: value for key, value in parameters.items() if key != "inner" and type(value) in _TOML}
        parameters |= {key: typed(value, hints[key], f"{where}.{key}") for key, value in given.items()}
    try:
        selector = cls(**parameters)
    except (TypeError, ValueError) as error:
        field, colon, _ = str(error).partition(":")
        raise ValueError(f"{where}{'.' if colon and field.isidentifier() else ': '}{error}") from None
    require(
        where, options.get("class", name), isinstance(selector, Selector), "a class with select(signals, k, *, rng)"
    )
    return typing.cast(Selector, selector)


def _selector_class(name: str, options: Mapping[str, Any], where: str) -> Any:
    kind = str(options.get("class", name))
    if kind in SELECTORS:
        return SELECTORS[kind]
    if "class" in options:
        where = f"{where}.class"
    if ":" not in kind:
        hint = suggestion(kind, SELECTORS)
        raise ValueError(f'{where}: unknown selector{hint}; or say class = "package.module:Name"')
    return named_object(where, kind, _is_selector_class, "a class with select(signals, k, *, rng)")


def _is_selector_class(found: Any) -> bool:
    return isinstance(found, type) and callable(getattr(found, "select", None))
