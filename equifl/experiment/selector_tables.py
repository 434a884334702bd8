"""Selectors to and from the tables of a configuration."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from equifl.experiment.object_tables import Kind, make_object, table_of
from equifl.selectors import SELECTORS, Selector

_KIND = Kind(
    what="selector",
    classes=SELECTORS,
    method="select",
    form="select(signals, k, *, rng)",
    fits=lambda thing: isinstance(thing, Selector),
)


def selector_table(selector: Selector, where: str = "selectors") -> dict[str, Any]:
    """The section that makes this selector: its class, and the parameters that are not at their defaults.

    Args:
        selector: an object of a dataclass, or of a class that keeps nothing.
        where: its key, for errors.

    >>> from equifl import SubTrunc, UnionFL
    >>> selector_table(UnionFL(mu=2.0, inner=SubTrunc(lam=0.9)))
    {'class': 'unionfl', 'mu': 2.0, 'inner': {'class': 'subtrunc', 'lam': 0.9}}
    """
    return table_of(selector, _KIND, where)


def make_selector(name: str, options: Mapping[str, Any], path: str = "selectors") -> Selector:
    """A selector from its section: by its name, or what `class` says: one of ours or "package.module:Name"."""
    return typing.cast(Selector, make_object(name, options, _KIND, f"{path}.{name}"))
