"""What the paper says in words, and whether our runs bear it out: from the interval, not from the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from equifl.metrics import interval
from equifl.paper.tables import LAMBDAS, TABLE_1_LAMBDA, WINDOWS
from equifl.signals import Floats

Values: TypeAlias = Callable[[str, str], Floats]  # (selector, measure) -> one value a seed, in the order of seeds


@dataclass(frozen=True)
class Claim:
    """A statement about one data set: that some number, one a seed, is below zero (or above)."""

    text: str
    table: str
    number: Callable[[Values], Floats]
    below: bool = True


@dataclass(frozen=True)
class Verdict:
    """What came out: the mean of the claim's number and the half width of its 95 % interval."""

    claim: Claim
    mean: float
    half_width: float
    seeds: int

    @property
    def outcome(self) -> str:
        """holds, does not hold, or not decided.

        >>> Verdict(Claim("a < b", "table1", lambda values: values("a", "x")), -2.0, 0.5, 20).outcome
        'holds'
        """
        side = -1 if self.claim.below else 1
        if self.mean * side > self.half_width:
            return "holds"
        if self.mean * side < -self.half_width:
            return "does not hold"
        return "not decided"

    @property
    def word(self) -> str:
        """The outcome, and where it is open, at how many seeds."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{self.outcome} at {seeds}" if self.outcome == "not decided" else self.outcome


def claims(data: str) -> list[Claim]:
    """Every claim of section V for a data set."""
    lam = TABLE_1_LAMBDA[data]
    ours = {"SubTrunc": f"subtrunc_{lam}", "UnionFL": "unionfl_5"}
    theirs = {"DivFL": "divfl", "Random": "uniform", "Power-of-Choice": "power_of_choice"}
    found = [
        Claim(f"{a} is less dissimilar than {b}", "table1", _difference(ours[a], theirs[b], "dissimilarity"))
        for a in ours
        for b in theirs
    ]
    found.append(_trend("dissimilarity falls as lambda grows", "table2", "subtrunc_{}", LAMBDAS, "dissimilarity"))
    found.append(_trend("accuracy grows with the window", "table3", "unionfl_{}", WINDOWS, "accuracy", below=False))
    found.append(_trend("dissimilarity falls as the window grows", "table3", "unionfl_{}", WINDOWS, "dissimilarity"))
    names = (f"subtrunc_{lam}_identity", f"subtrunc_{lam}")
    found.append(Claim("identity is less dissimilar than ln(1+x)", "table4", _difference(*names, "dissimilarity")))
    return found


def judge(claim: Claim, values: Values) -> Verdict:
    """Paired by seed."""
    numbers = claim.number(values)
    mean, half_width = interval(numbers)
    return Verdict(claim, mean, half_width, len(numbers))


def _difference(one: str, other: str, measure: str) -> Callable[[Values], Floats]:
    return lambda values: values(one, measure) - values(other, measure)


def _trend(text: str, table: str, name: str, steps: Sequence[float], measure: str, *, below: bool = True) -> Claim:
    """The least-squares slope over the settings in their order (1, 2, 3, ...), one a seed."""
    order = np.arange(len(steps)) - (len(steps) - 1) / 2

    def slope(values: Values) -> Floats:
        series = np.stack([values(name.format(step), measure) for step in steps])
        return order @ series / (order @ order)

    return Claim(f"{text} (slope a step)", table, slope, below)


def values_of(results: Mapping[str, Mapping[int, Mapping[str, float]]], seeds: Sequence[int]) -> Values:
    """Look-up in final metrics by selector and seed."""
    return lambda selector, measure: np.array([results[selector][seed][measure] for seed in seeds])
