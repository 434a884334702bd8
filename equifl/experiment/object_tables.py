"""Objects with parameters, such as selectors and server rules, to and from the tables of a configuration."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from equifl._numerics.checks import require, shown
from equifl.experiment.from_toml import require_known, suggestion, typed
from equifl.experiment.named_object import named_object

_TOML = (bool, int, float, str, list, dict)  # the types of a file; from Python a parameter may be given as anything


@dataclass(frozen=True)
class Kind:
    """A kind of objects.

    Attributes:
        what: one of them, in words.
        classes: ours, by their names in configurations.
        method: what an object of this kind has.
        form: how that is written.
        fits: whether an object is one.
    """

    what: str
    classes: Mapping[str, type]
    method: str
    form: str
    fits: Callable[[Any], bool]


def table_of(thing: Any, kind: Kind, where: str) -> dict[str, Any]:
    """The table that makes this object: its class, and the parameters that are not at their defaults.

    Args:
        thing: an object of a dataclass, or of a class that keeps nothing.
        kind: what it is.
        where: its key, for errors.
    """
    cls = type(thing)
    if isinstance(thing, type):
        raise ValueError(f"{where}: is the class {thing.__name__}; allowed: an object, {thing.__name__}()")
    name = {ours: name for name, ours in kind.classes.items()}.get(cls, f"{cls.__module__}:{cls.__qualname__}")
    if not dataclasses.is_dataclass(thing) and getattr(thing, "__dict__", {}):
        raise ValueError(
            f"{where}: {shown(thing)} is not allowed; allowed: an object of a dataclass, or a table such as "
            f"{{'class': '{name}'}} with its parameters"
        )
    if "." in cls.__qualname__:
        raise ValueError(
            f"{where}: {cls.__qualname__} is within another class or function, where no folder could find it again; "
            "move it to the top level"
        )
    given: dict[str, Any] = {}
    if dataclasses.is_dataclass(thing):
        given = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.init}
    default = cls() if cls in kind.classes.values() else None
    changed = {key: value for key, value in given.items() if default is None or value != getattr(default, key)}
    tables = {
        key: table_of(value, kind, f"{where}.{key}") if kind.fits(value) else value for key, value in changed.items()
    }
    return {"class": name, **tables}


def require_table(where: str, value: Any) -> None:
    """Raise ValueError if this is no table of an object; a name alone is shown as one."""
    form = f'{{"class": "{value}"}}' if isinstance(value, str) else '{"class": ...} with its parameters'
    require(where, value, isinstance(value, Mapping), f"an object, or a table: {form}")


def make_object(name: str, options: Mapping[str, Any], kind: Kind, where: str) -> Any:
    """An object from its table: by its name, or what `class` says: one of ours or "package.module:Name"."""
    require_table(where, options)
    cls = _class(name, options, kind, where)
    parameters = {key: value for key, value in options.items() if key != "class"}
    if dataclasses.is_dataclass(cls):
        require_known(parameters, [f.name for f in dataclasses.fields(cls) if f.init], where)
    if isinstance(parameters.get("inner"), Mapping | str):
        require_table(f"{where}.inner", parameters["inner"])
        parameters["inner"] = make_object("inner", parameters["inner"], kind, f"{where}.inner")
    if cls in kind.classes.values():
        hints = typing.get_type_hints(cls)
        given = {key: value for key, value in parameters.items() if key != "inner" and type(value) in _TOML}
        parameters |= {key: typed(value, hints[key], f"{where}.{key}") for key, value in given.items()}
    try:
        made = cls(**parameters)
    except (TypeError, ValueError) as error:
        field, colon, _ = str(error).partition(":")
        raise ValueError(f"{where}{'.' if colon and field.isidentifier() else ': '}{error}") from None
    require(where, options.get("class", name), kind.fits(made), f"a class with {kind.form}")
    return made


def _class(name: str, options: Mapping[str, Any], kind: Kind, where: str) -> Any:
    chosen = str(options.get("class", name))
    if chosen in kind.classes:
        return kind.classes[chosen]
    if "class" in options:
        where = f"{where}.class"
    if ":" not in chosen:
        hint = suggestion(chosen, kind.classes)
        raise ValueError(f'{where}: unknown {kind.what}{hint}; or say class = "package.module:Name"')

    def ok(found: Any) -> bool:
        return isinstance(found, type) and callable(getattr(found, kind.method, None))

    return named_object(where, chosen, ok, f"a class with {kind.form}")
