"""What the selectors of the paper share: they maximise an objective by greedy, and check its parameters alike."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from equifl._numerics.checks import generator, integer, require
from equifl._numerics.distances import GIBIBYTE
from equifl.maximizers import lazy_greedy, stochastic_greedy
from equifl.objectives import Scale, SetFunction
from equifl.selectors.base import Rng, check_call, needs, objective_of, sample_of
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Ints, Signals


class MaximisesObjective:
    """Selects the cohort that maximises `objective`; the selectors of the paper differ in that alone."""

    sample: int | None

    def objective(self, signals: Signals) -> SetFunction:
        """What is maximised."""
        raise NotImplementedError

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        return maximise(
            objective_of(self, signals, k), signals, k, sample=sample_of(self), rng=rng, needs=sorted(needs(self))
        )


def check_greedy(*, sample: int | None, scale: Scale = "absolute", memory_limit: int = GIBIBYTE) -> None:
    """Raise ValueError for invalid parameters of a submodular selector, at construction and not in the first round."""
    if sample is not None:
        integer("sample", sample, least=1)
    require("scale", scale, scale in get_args(Scale), " or ".join(map(repr, get_args(Scale))))
    integer("memory_limit", memory_limit, least=1)


def maximise(
    function: SetFunction,
    signals: Signals,
    k: int,
    *,
    sample: int | None,
    rng: Rng,
    needs: Collection[str] = ("losses", "updates"),
) -> Ints:
    """The cohort that maximises `function`: by lazy greedy, or stochastic greedy with `sample` candidates a step.

    `needs` are the signals that make a client known to it, for the warning if nobody has sent them.
    """
    draws = generator(rng)

    def choose(candidates: Ints, places: int) -> Ints:
        if sample is None:
            return lazy_greedy(function, places, candidates=candidates)
        return stochastic_greedy(function, places, sample=sample, rng=draws, candidates=candidates)

    return unknown_first(signals, k, known=function.known, rng=draws, choose=choose, needs=needs)
