"""Names of selectors in tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from equifl.selectors import SELECTORS

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
