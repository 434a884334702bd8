"""Choosing a cohort on the server of a live federation."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from equifl._numerics.distances import GIBIBYTE
from equifl.selectors import SELECTORS, Selector
from equifl.selectors.explanation import select_and_explain
from equifl.signals import Ints, Signals


def frugal(selector: Any) -> Any:
    """The selector with a lower memory limit for distances: a server also holds a model and the replies."""
    options = {field.name for field in fields(selector)} if type(selector) in SELECTORS.values() else set()
    changed: dict[str, Any] = {"inner": frugal(selector.inner)} if "inner" in options else {}
    if "memory_limit" in options and selector.memory_limit == GIBIBYTE:
        changed["memory_limit"] = GIBIBYTE // 8
    return replace(selector, **changed) if changed else selector


def name_of(selector: Selector) -> str:
    """Its name in a configuration; for a selector of one's own that of its class, in small letters."""
    names = {kind: name for name, kind in SELECTORS.items()}
    return names.get(type(selector), type(selector).__name__.lower())


def choose(selector: Selector, signals: Signals, k: int, *, seed: int) -> tuple[Ints, dict[str, Any]]:
    """At most k of the available clients, and the entries of the round's row that say why.

    The random choices depend on the seed and the round alone, so that a resumed run goes on as an unbroken one.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, signals.round]))
    return select_and_explain(selector, signals, k, rng=rng, name=name_of(selector))
