"""What the paper says in words, and whether our runs bear it out: from the interval, not from the mean.

The number of a claim is a difference or a slope. It is computed in the same way from our runs, one a seed, and from
the means that the paper prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from equifl.paper.tables import LAMBDAS, TABLE_1_LAMBDA, WINDOWS, rows
from equifl.signals import Floats
from equifl.statistics import interval, verdict

MARGIN = 0.5  # points of accuracy or dissimilarity, from the first setting to the last: below what a user would notice

Values: TypeAlias = Callable[[str, str], Floats]  # (selector, measure) -> one value a seed, in the order of seeds


@dataclass(frozen=True)
class Claim:
    """A statement about one data set: that some number is below zero (or above).

    Attributes:
        text: what the paper says.
        table: the table it speaks of.
        number: the number in question, from values of selectors and measures.
        below: whether it is said to be below zero.
        printed: the number from the paper's printed means; nan if it prints none.
        margin: the difference that would not matter, for a claim that does not hold.
    """

    text: str
    table: str
    number: Callable[[Values], Floats]
    below: bool = True
    printed: float = math.nan
    margin: float = MARGIN


@dataclass(frozen=True)
class Verdict:
    """What came out: the mean of the claim's number and the half width of its 95 % interval."""

    claim: Claim
    mean: float
    half_width: float
    seeds: int

    @property
    def outcome(self) -> str:
        """holds, contradicted, equivalent within a margin, or not decided: see `equifl.statistics.verdict`.

        The paper's value has an error of its own, which is not known: the paper says neither how many runs its means
        are of nor whether they are paired. Without a value (nan) only an interval on the other side of zero
        contradicts, and without an interval (one seed) nothing is decided.

        >>> claim = Claim("a < b", "table1", lambda values: values("a", "x"), printed=-1.0, margin=0.5)
        >>> [Verdict(claim, mean, width, 20).outcome for mean, width in ((-2.0, 0.5), (0.1, 0.5), (-0.7, 0.9))]
        ['holds', 'contradicted', 'not decided']
        """
        side = -1 if self.claim.below else 1
        given = {"printed": self.claim.printed * side, "margin": self.claim.margin}
        return verdict(self.mean * side, self.half_width, **given)

    @property
    def word(self) -> str:
        """The outcome, and where it is open, at how many seeds."""
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{self.outcome} at {seeds}" if self.outcome == "not decided" else self.outcome

    @property
    def figures(self) -> str:
        """Our mean and interval beside the paper's value.

        >>> Verdict(Claim("a < b", "table1", lambda values: values("a", "x"), printed=-0.93), 0.07, 0.37, 20).figures
        '+0.07 ± 0.37, paper -0.93'
        """
        return f"{self.mean:+.2f} ± {self.half_width:.2f}, paper {self.claim.printed:+.2f}"


def claims(data: str) -> list[Claim]:
    """Every claim of section V for a data set, with what the paper's own means say to it."""
    lam = TABLE_1_LAMBDA[data]
    ours = {"SubTrunc": f"subtrunc_{lam}", "UnionFL": "unionfl_5"}
    theirs = {"DivFL": "divfl", "Random": "uniform", "Power-of-Choice": "power_of_choice"}
    found = [
        Claim(f"{a} is less dissimilar than {b}", "table1", _difference(ours[a], theirs[b], "dissimilarity"))
        for a in ours
        for b in theirs
    ]
    found.append(trend("dissimilarity falls as lambda grows", "table2", "subtrunc_{}", LAMBDAS, "dissimilarity"))
    found.append(trend("accuracy grows with the window", "table3", "unionfl_{}", WINDOWS, "accuracy", below=False))
    found.append(trend("dissimilarity falls as the window grows", "table3", "unionfl_{}", WINDOWS, "dissimilarity"))
    names = (f"subtrunc_{lam}_identity", f"subtrunc_{lam}")
    found.append(Claim("identity is less dissimilar than ln(1+x)", "table4", _difference(*names, "dissimilarity")))
    return [replace(claim, printed=float(claim.number(_printed(claim.table, data))[0])) for claim in found]


def _printed(table: str, data: str) -> Values:
    """Look-up in the means of a table of the paper, as if they were the values of one seed."""
    figures = {row.selector: row.printed for row in rows(table, data)}
    return lambda selector, measure: np.array([figures[selector][measure][0]])


def judge(claim: Claim, values: Values) -> Verdict:
    """Paired by seed."""
    numbers = claim.number(values)
    mean, half_width = interval(numbers)
    return Verdict(claim, mean, half_width, len(numbers))


def _difference(one: str, other: str, measure: str) -> Callable[[Values], Floats]:
    return lambda values: values(one, measure) - values(other, measure)


def trend(text: str, table: str, name: str, steps: Sequence[float], measure: str, *, below: bool = True) -> Claim:
    """The least-squares slope over the settings in their order (1, 2, 3, ...), one a seed."""
    order = np.arange(len(steps)) - (len(steps) - 1) / 2

    def slope(values: Values) -> Floats:
        series = np.stack([values(name.format(step), measure) for step in steps])
        return order @ series / (order @ order)

    return Claim(f"{text} (slope a step)", table, slope, below, margin=MARGIN / (len(steps) - 1))


def values_of(results: Mapping[str, Mapping[int, Mapping[str, float]]], seeds: Sequence[int]) -> Values:
    """Look-up in final metrics by selector and seed."""
    return lambda selector, measure: np.array([results[selector][seed][measure] for seed in seeds])
