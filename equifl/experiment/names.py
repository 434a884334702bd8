"""Names of selectors in tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from equifl.selectors import SELECTORS
from equifl.selectors.power_of_choice import variant

_NAMES_IN_THE_PAPER: Mapping[str, str] = {"uniform": "Random", "power_of_choice": "Power-of-Choice"}


def display_name(key: str) -> str:
    """The name of a selector in tables and figures: the paper's or its class's; other keys stay.

    >>> display_name("uniform"), display_name("subtrunc[lam=0.5]"), display_name("subtrunc_0.95")
    ('Random', 'SubTrunc[lam=0.5]', 'subtrunc_0.95')
    """
    name, bracket, parameters = key.partition("[")
    shown = _NAMES_IN_THE_PAPER.get(name) or (SELECTORS[name].__name__ if name in SELECTORS else name)
    return shown + bracket + parameters


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def notes_on(config: Mapping[str, Any]) -> list[str]:
    """What a table of an experiment has to say of its settings.

    >>> notes_on({"flower": {"participation": "present"}})
    ['Participation counts the clients that were present in the last round.']
    """
    present = config.get("flower", {}).get("participation") == "present"
    whose = ["Participation counts the clients that were present in the last round."] if present else []
    return variant_notes(config) + whose


def variant_notes(config: Mapping[str, Any]) -> list[str]:
    """Which of its authors' variants Power-of-Choice is in an experiment, as a sentence; nothing without it.

    >>> variant_notes({"signal": "gradient", "signal_examples": None, "selectors": {"power_of_choice": {}}})
    ["Power-of-Choice is its authors' pow-d: losses are fresh."]
    """
    tables = config.get("selectors", {})
    names = [name for name, table in tables.items() if (table.get("class") or name.split("[")[0]) == "power_of_choice"]
    if not names:
        return []
    fresh, subsample = config.get("signal") == "gradient", config.get("signal_examples") is not None
    losses = "fresh" if fresh else "those of each client's last selection"
    part = ", from a part of its examples" if subsample else ""
    kind = variant(fresh=fresh, subsample=subsample)
    return [f"{listed([display_name(name) for name in names])} is its authors' {kind}: losses are {losses}{part}."]
