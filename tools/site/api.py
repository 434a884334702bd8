"""The API reference: a page a room of the package, of what its docstrings say."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

import equifl
from equifl.aggregators import AGGREGATORS
from equifl.selectors import SELECTORS

# Rooms that are no Python interface: commands, and what the paper's pages are made with.
LEFT_OUT = {"cli", "extras", "paper", "__main__"}
# Of these rooms, the modules that a user imports; of others what __all__ names, or all that is public.
MODULES: Mapping[str, tuple[str, ...]] = {
    "experiment": ("config", "results", "table", "callbacks"),
    "sim": ("data", "data.partition", "tasks", "engines.base"),
    "report": ("numbers", "plot", "page"),
}

HEAD = """# Python API

From the docstrings. What most programs need is in `equifl` itself: selectors, signals, `simulate` and results.

```{toctree}
:maxdepth: 1

"""


def pages() -> dict[str, str]:
    """Every page by its name in the site."""
    rooms = {name: page for name in _rooms() if (page := _page(name, list(_names(name))))}
    listed = HEAD + "\n".join(rooms) + "\n```\n"
    return {"reference/api/index.md": listed} | {f"reference/api/{name}.md": page for name, page in rooms.items()}


def exported() -> list[str]:
    """The names that a user imports from `equifl` itself."""
    return sorted({*equifl.__all__, "simulate"})


def directive(name: str) -> str:
    """What makes autodoc document an object of this dotted name."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    kind = "autoclass" if inspect.isclass(found) else "autofunction"
    options = "\n   :members:" if inspect.isclass(found) else ""
    return f".. {kind}:: {name}{options}\n"


def _rooms() -> list[str]:
    rooms = [module.name for module in pkgutil.iter_modules(equifl.__path__)]
    return ["equifl", *(f"equifl.{name}" for name in rooms if not name.startswith("_") and name not in LEFT_OUT)]


def _page(room: str, names: list[str]) -> str:
    if not names:
        return ""
    summary = (inspect.getdoc(importlib.import_module(room)) or "").split("\n\n")[0]
    parts = [f"# {room}\n\n{summary}\n"]
    if room in ("equifl.selectors", "equifl.aggregators"):
        kind = room.removeprefix("equifl.")
        parts.append(f"[A page each](../../{kind}.md) has the methods themselves.\n")
    return "\n".join([*parts, "```{eval-rst}", *map(directive, names), "```", ""])


def _names(room: str) -> Iterator[str]:
    """Dotted names of what is documented on the page of a room: each object once in the site."""
    own_pages = {id(cls) for cls in (*SELECTORS.values(), *AGGREGATORS.values())}
    first = {id(getattr(equifl, name)) for name in exported()}
    if room == "equifl":
        yield from (f"equifl.{name}" for name in exported() if id(getattr(equifl, name)) not in own_pages)
        return
    for module in _modules(room):
        for name in _public(module):
            found = id(getattr(module, name))
            if found not in own_pages and found not in first:
                first.add(found)
                yield f"{module.__name__}.{name}"


def _modules(room: str) -> Iterator[ModuleType]:
    module = importlib.import_module(room)
    inner = MODULES.get(room.removeprefix("equifl."))
    if inner is None and hasattr(module, "__path__") and not hasattr(module, "__all__"):
        inner = tuple(found.name for found in pkgutil.iter_modules(module.__path__) if not found.name.startswith("_"))
    yield module
    yield from (importlib.import_module(f"{room}.{name}") for name in inner or ())


def _public(module: ModuleType) -> list[str]:
    """Classes and functions: those of __all__, or those defined in the module, in its order."""
    named = getattr(module, "__all__", None)
    return [
        name
        for name in (named if named is not None else vars(module))
        if not name.startswith("_")
        and (inspect.isclass(found := getattr(module, name)) or inspect.isfunction(found))
        and (named is not None or found.__module__ == module.__name__)
    ]
