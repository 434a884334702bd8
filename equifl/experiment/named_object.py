"""Objects that a configuration names as "package.module:Name", checked before they are called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from equifl._numerics.checks import brief, require, shown

_STANDARD = sys.stdlib_module_names | set(sys.builtin_module_names)


def named_object(where: str, name: str, ok: Callable[[Any], bool], allowed: str) -> Any:
    """What "package.module:Name" stands for, if it is `ok`.

    Importing a module runs it. So modules of the standard library are refused before that: they have nothing that a
    configuration could mean. What another module imported from there is refused, too.

    Args:
        where: the key, for errors.
        name: what is named there.
        ok: whether the object may be called.
        allowed: what is, in words.

    >>> named_object("train.model", "subprocess:Popen", callable, "a module")
    Traceback (most recent call last):
    ValueError: train.model: 'subprocess:Popen' is of the standard library, which is not allowed; allowed: a module
    """
    module, _, attribute = name.partition(":")
    found: Any = None
    try:
        if not _is_standard(module):
            found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ValueError(f"{where}: {shown(name)} cannot be found ({brief(error)})") from None
    if _is_standard(module) or _is_standard(getattr(found, "__module__", None)):
        raise ValueError(
            f"{where}: {shown(name)} is of the standard library, which is not allowed; allowed: {allowed}"
        )
    require(where, name, ok(found), allowed)
    return found


def importable_name(found: Any) -> str:
    """The name "package.module:Name" of a class or function at the top level of a module; "" if it has none.

    >>> importable_name(named_object), importable_name(lambda: 0)
    ('equifl.experiment.named_object:named_object', '')
    """
    if not isinstance(found, FunctionType | type):
        return ""
    module = sys.modules.get(found.__module__)
    there = getattr(module, found.__name__, None) is found
    return f"{found.__module__}:{found.__name__}" if there else ""


def own_name(found: Any) -> str:
    """What a class, function or other object is called where it was written.

    >>> own_name(named_object), own_name(3)
    ('named_object', 'int')
    """
    return str(getattr(found, "__qualname__", type(found).__name__))


def _is_standard(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _STANDARD
