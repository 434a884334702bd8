"""Replace the facility locations in an objective."""

from __future__ import annotations

from collections.abc import Callable

from equifl.objectives import FacilityLocation, Modular, Scaled, SetFunction, Sum, Truncated


def with_locations(function: SetFunction, change: Callable[[FacilityLocation], SetFunction]) -> SetFunction:
    """The function with `change(G)` in the place of every facility location G in it.

    >>> from equifl.signals import Signals
    >>> G, F = FacilityLocation(Signals(updates=[[0.0], [1.0], [10.0]])), Modular([1.0, 2.0, 3.0])
    >>> with_locations(G + F, lambda location: 2 * location)([1]) == (2 * G + F)([1])
    True
    """
    if isinstance(function, FacilityLocation):
        return change(function)
    if isinstance(function, Modular):
        return function
    if isinstance(function, Truncated):
        return Truncated(with_locations(function.function, change), function.b)
    if isinstance(function, Scaled):
        return Scaled(function.factor, with_locations(function.function, change))
    if isinstance(function, Sum):
        return Sum([with_locations(part, change) for part in function.parts])
    allowed = "FacilityLocation, Modular, Truncated, and + - * between them"
    raise ValueError(f"objective: a {type(function).__name__} cannot be spread over a cluster; allowed: {allowed}")
