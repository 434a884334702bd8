"""What hypothesis draws: signals, set functions, subsets."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from equifl import Signals
from equifl.objectives import FacilityLocation, Modular, SetFunction, Truncated
from equifl.signals import Ints


@st.composite
def some_signals(draw: st.DrawFn, *, least: int = 1, most: int = 9, unknown: bool = True) -> Signals:
    """Few clients; half the time on a small grid, so that ties are common."""
    n = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = draw(st.booleans())
    updates = rng.integers(0, 3, (n, 2)).astype(float) if grid else rng.normal(size=(n, 3))
    losses = rng.integers(0, 3, n).astype(float) if grid else rng.exponential(size=n)
    last = rng.integers(-1, 5, n)
    if unknown and draw(st.booleans()):
        updates[rng.random(n) < 0.3] = np.nan
        losses[rng.random(n) < 0.3] = np.nan
    fields: dict[str, Any] = {"losses": losses, "updates": updates, "last_selected": last, "round": 5}
    return Signals(**fields, times_selected=np.where(last < 0, 0, rng.integers(1, 4, n)))


@st.composite
def monotone_functions(draw: st.DrawFn, *, most: int = 9) -> SetFunction:
    """Everything the algebra can make that is monotone."""
    signals = draw(some_signals(most=most))
    weight = draw(st.floats(0, 5))
    F = Modular(signals.losses)
    G = FacilityLocation(signals, scale=draw(st.sampled_from(["absolute", "relative"])))
    b = draw(st.floats(0.01, 20))
    makers: list[Callable[[], SetFunction]] = [
        lambda: G,
        lambda: F,
        lambda: Truncated(F, b),
        lambda: Truncated(G + F, b),
        lambda: weight * G,
        lambda: G + weight * Truncated(F, b),
        lambda: G + F + 0.5 * Truncated(G, b),
    ]
    return draw(st.sampled_from(makers))()


@st.composite
def functions(draw: st.DrawFn, *, most: int = 9) -> SetFunction:
    """The monotone ones, and the same less a modular price."""
    function = draw(monotone_functions(most=most))
    if draw(st.booleans()):
        return function
    prices = draw(st.lists(st.floats(-3, 3), min_size=function.n, max_size=function.n))
    return function - draw(st.floats(0, 4)) * Modular(prices)


@st.composite
def subsets(draw: st.DrawFn, n: int) -> Ints:
    """Distinct elements in any order."""
    order = draw(st.permutations(range(n)))
    return np.array(order[: draw(st.integers(0, n))], np.int64)
