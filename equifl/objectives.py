"""Set functions over clients: the value of a cohort, and the gain of one more client.

Everything that can be written with `+`, `-` and `*` here is submodular: only a `Modular` function may be
subtracted or scaled by a negative number. In floating point too the computed gains never grow as the set
grows (each is made of operations that keep order under rounding), so lazy greedy is exactly greedy.

Longer than 300 lines because the functions and the operators between them make each other: `+` gives a sum, `*` a
multiple, and both are set functions again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import tee
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from equifl._numerics.checks import numbers, require, require_each
from equifl._numerics.distances import GIBIBYTE, Distances
from equifl.signals import Bools, Floats, Ints, Signals

Scale: TypeAlias = Literal["absolute", "relative"]
State: TypeAlias = Any  # each function's own; made by init and update, read by gains


class SetFunction(ABC):
    """A normalised submodular function f of subsets of {0, ..., n-1}: f(empty set) = 0.

    `f(subset)` is the definition. The incremental path computes the same faster: `init()` is the state of the
    empty set, `gains(state, candidates)` what each candidate would add, `update(state, e)` the state with e.

    Attributes:
        n: size of the ground set.
        known: (n,) the elements whose signals are known: the others gain 0.
        monotone: whether adding an element can never lower the value.
    """

    n: int
    known: Bools
    monotone: bool

    @abstractmethod
    def __call__(self, subset: ArrayLike) -> float: ...

    @abstractmethod
    def init(self) -> State: ...

    @abstractmethod
    def gains(self, state: State, candidates: Ints) -> Floats: ...

    @abstractmethod
    def update(self, state: State, element: int) -> State: ...

    def foresee(self, steps: Iterable[Ints]) -> None:
        """Announce whose gains will be requested, step by step, so that a function may prepare them together."""
        return

    def __add__(self, other: SetFunction) -> SetFunction:
        return Sum((*terms(self), *terms(other)))

    def __sub__(self, other: SetFunction) -> SetFunction:
        return self + -1.0 * other

    def __mul__(self, factor: float) -> SetFunction:
        return Scaled(factor, self)

    __rmul__ = __mul__


class FacilityLocation(SetFunction):
    """How well a cohort represents all clients (eq. 9 and 10): G(S) = Gbar(empty set) - Gbar(S).

    Gbar(S) = sum over clients i of min over j in S of D_ij, the distance between updates. Gbar of the empty set
    is sum_i max_j D_ij, or where the matrix is never made an upper bound of it: any larger constant picks the
    same clients. Unknown clients neither are represented nor represent others.

    The N x N matrix is never needed. It is made (from updates, in float32) once the gains of more than half of
    the clients are asked for, as greedy does at its first step, and if it fits `memory_limit`; otherwise
    rows are computed in blocks as they are asked for, and those of the next steps together where these are known.

    Args:
        signals: their `distances` are used, else the Euclidean ones between `updates`; updates implausibly longer than
            the others are shortened (`equifl.outliers`), and their distances lowered.
        scale: "absolute" distances as in the paper, or "relative" to their mean over all pairs
            (over all pairs with 1,024 evenly spaced clients, where there are more).
        memory_limit: bytes that may be taken for distances, beside the updates and a few numbers a client.

    >>> G = FacilityLocation(Signals(updates=[[0.0], [1.0], [10.0]]))
    >>> G([1]), G([1, 2]), G.gains(G.init(), np.array([0, 1, 2])).tolist()
    (19.0, 28.0, [18.0, 19.0, 10.0])
    """

    monotone = True

    def __init__(self, signals: Signals, *, scale: Scale = "absolute", memory_limit: int = GIBIBYTE) -> None:
        self.n, self.known = signals.n, signals.knows_update
        self.scale: Scale = scale
        self.memory_limit = memory_limit
        self._distances = Distances(signals, memory_limit)
        self._position = np.cumsum(self.known) - 1  # of a client among the known ones
        self._farthest = self._distances.farthest()
        self._mean = (scale == "relative" and self._distances.mean()) or 1.0
        self._unit = 1.0 if scale == "relative" else value_unit(self._distances.unit)

    def __call__(self, subset: ArrayLike) -> float:
        members = _members(subset, self.n)
        members = self._position[members[self.known[members]]]
        if not len(members):
            return 0.0
        nearest = self._distances.rows(members).min(axis=0)
        return float(np.sum(self.init() - nearest, dtype=np.float64)) / self._mean * self._unit

    def init(self) -> Floats:
        """The distance at which each known client counts as not represented."""
        return self._farthest

    def gains(self, state: Floats, candidates: Ints) -> Floats:
        """Gain of j: sum over i of max(0, nearest_i - D_ij), where `state` is nearest_i, the distance to the set."""

        def saved(distances: Floats) -> Floats:
            # nearest - min(nearest, D), and not sum(nearest) - sum(min(nearest, D)): no digits are lost,
            # and element by element it can only shrink as `nearest` does.
            nearer = np.minimum(state, distances)
            np.subtract(state, nearer, out=nearer)
            return nearer.sum(axis=1)

        gains = np.zeros(len(candidates))
        known = self.known[candidates]
        gains[known] = self._distances.reduce(self._position[candidates[known]], saved)
        return gains / self._mean * self._unit

    def foresee(self, steps: Iterable[Ints]) -> None:
        self._distances.foresee(self._position[step[self.known[step]]] for step in steps)

    def update(self, state: Floats, element: int) -> Floats:
        if not self.known[element]:
            return state
        return np.minimum(state, self._distances.rows(self._position[[element]])[0])


class Modular(SetFunction):
    """A sum of weights of the members: F(S) = sum over i in S of weights_i (eq. 12).

    A weight of nan means an unknown client and counts as 0.

    >>> F = Modular([1.0, 2.0, float("nan")])
    >>> F([0, 1, 2]), (3 * F)([0]), F.known.tolist()
    (3.0, 3.0, [True, True, False])
    """

    def __init__(self, weights: ArrayLike) -> None:
        given = numbers("weights", weights, np.float64)
        if given.ndim != 1:
            raise ValueError(f"weights: shape {given.shape} is not allowed; allowed: one weight a client")
        require_each("weights", given, ~np.isinf(given), "finite, or nan for an unknown client")
        self.n = len(given)
        self.known = ~np.isnan(given)
        self.weights: Floats = np.where(self.known, given, 0.0)
        self.monotone = bool((self.weights >= 0).all())

    def __call__(self, subset: ArrayLike) -> float:
        return float(self.weights[_members(subset, self.n)].sum())

    def init(self) -> None:
        return None

    def gains(self, state: None, candidates: Ints) -> Floats:
        return self.weights[candidates]

    def update(self, state: None, element: int) -> None:
        return None

    def __mul__(self, factor: float) -> Modular:
        return Modular(np.where(self.known, factor * self.weights, np.nan))

    __rmul__ = __mul__


class Truncated(SetFunction):
    """A truncated function (Proposition 1): min(b, F(S)), for a monotone F and b > 0.

    >>> H = Truncated(Modular([1.0, 2.0]), 2.5)
    >>> H([0]), H([0, 1])
    (1.0, 2.5)
    """

    monotone = True

    def __init__(self, function: SetFunction, b: float) -> None:
        require("b", b, b > 0, "above 0")
        if not function.monotone:
            raise ValueError(
                "Truncated: its function must be monotone (no negative weights), else it is not submodular"
            )
        self.n, self.known = function.n, function.known
        self.function, self.b = function, b

    def __call__(self, subset: ArrayLike) -> float:
        return min(self.b, self.function(subset))

    def init(self) -> State:
        return 0.0, self.function.init()

    def gains(self, state: State, candidates: Ints) -> Floats:
        """min(b, F + gain) - min(b, F), written so that rounding cannot make it grow with F."""
        value, inner = state
        return np.minimum(self.function.gains(inner, candidates), max(self.b - value, 0.0))

    def foresee(self, steps: Iterable[Ints]) -> None:
        self.function.foresee(steps)

    def update(self, state: State, element: int) -> State:
        value, inner = state
        gain = float(self.function.gains(inner, np.array([element]))[0])
        return value + gain, self.function.update(inner, element)


class Scaled(SetFunction):
    """factor * f, for a factor of 0 or more; made by `0.5 * f`.

    >>> (0.5 * Truncated(Modular([1.0, 2.0]), 2.5))([0, 1])
    1.25
    """

    def __init__(self, factor: float, function: SetFunction) -> None:
        require("factor", factor, 0 <= factor < np.inf, "0 or more; only Modular functions may be negated")
        self.n, self.known, self.monotone = function.n, function.known, function.monotone
        self.factor, self.function = float(factor), function

    def __call__(self, subset: ArrayLike) -> float:
        return self.factor * self.function(subset)

    def init(self) -> State:
        return self.function.init()

    def gains(self, state: State, candidates: Ints) -> Floats:
        return self.factor * self.function.gains(state, candidates)

    def foresee(self, steps: Iterable[Ints]) -> None:
        self.function.foresee(steps)

    def update(self, state: State, element: int) -> State:
        return self.function.update(state, element)


class Sum(SetFunction):
    """The sum of set functions on the same clients (Proposition 2); made by `f + g` and `f - g`.

    >>> (Modular([1.0, 2.0]) - Modular([0.5, 0.0]))([0, 1])
    2.5
    """

    def __init__(self, parts: Sequence[SetFunction]) -> None:
        sizes = {part.n for part in parts}
        if len(sizes) != 1:
            raise ValueError(f"Sum: ground sets of {sorted(sizes)} clients do not match")
        self.parts = tuple(parts)
        self.n = parts[0].n
        self.known = np.logical_and.reduce([part.known for part in parts])
        self.monotone = all(part.monotone for part in parts)

    def __call__(self, subset: ArrayLike) -> float:
        return sum(part(subset) for part in self.parts)

    def init(self) -> State:
        return tuple(part.init() for part in self.parts)

    def gains(self, state: State, candidates: Ints) -> Floats:
        total = np.zeros(len(candidates))
        for part, inner in zip(self.parts, state, strict=True):
            total += part.gains(inner, candidates)
        return total

    def foresee(self, steps: Iterable[Ints]) -> None:
        for part, same_steps in zip(self.parts, tee(steps, len(self.parts)), strict=True):
            part.foresee(same_steps)

    def update(self, state: State, element: int) -> State:
        return tuple(part.update(inner, element) for part, inner in zip(self.parts, state, strict=True))


def value_unit(unit: float) -> float:
    """The unit of distances as the factor of gains: not so extreme that these overflow or vanish and all tie.

    >>> value_unit(4.0), value_unit(2.0**1000) == 2.0**900
    (4.0, True)
    """
    return min(max(unit, 2.0**-900), 2.0**900)


def terms(function: SetFunction) -> tuple[SetFunction, ...]:
    """The terms of a sum; the function itself if it is no sum."""
    return function.parts if isinstance(function, Sum) else (function,)


def explain(function: SetFunction, chosen: ArrayLike) -> Floats:
    """(len(chosen), terms) what each client added to each term of the sum when it was chosen, in that order.

    >>> explain(Modular([1.0, 2.0]) + Truncated(Modular([5.0, 5.0]), 7.0), [1, 0]).tolist()
    [[2.0, 5.0], [1.0, 2.0]]
    """
    order = [int(element) for element in np.asarray(chosen)]
    table = np.zeros((len(order), len(terms(function))))
    for column, term in enumerate(terms(function)):
        state = term.init()
        term.foresee(np.array([element]) for element in order)
        for row, element in enumerate(order):
            table[row, column] = term.gains(state, np.array([element]))[0]
            state = term.update(state, element)
    return table


def _members(subset: ArrayLike, n: int) -> Ints:
    members = np.unique(np.asarray(subset, dtype=np.int64))
    if len(members) and not (members[0] >= 0 and members[-1] < n):
        raise ValueError(f"subset: {members.tolist()} is not allowed; allowed: ids from 0 to {n - 1}")
    return members
