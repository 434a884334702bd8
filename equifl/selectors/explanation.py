"""The value of a cohort, term by term of the selector's objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from equifl.objectives import Scaled, SetFunction, Truncated, explain, terms
from equifl.selectors.base import HasObjective, Selector, needs, objective_of, require_cohort, sample_of
from equifl.selectors.greedy_selection import MaximisesObjective, maximise
from equifl.signals import Ints, Signals


def select_and_explain(
    selector: Selector, signals: Signals, k: int, *, rng: np.random.Generator, name: str
) -> tuple[Ints, dict[str, Any]]:
    """The cohort, checked, and its `explanation`; the objective is built once for both.

    Args:
        selector: the selector to call.
        signals: what is known of the clients.
        k: how many clients, no more than are available.
        rng: source of its random choices.
        name: name of the selector in the error if its cohort is invalid.
    """
    function: SetFunction | None
    if isinstance(selector, MaximisesObjective) and type(selector).select is MaximisesObjective.select:
        function = objective_of(selector, signals, k)
        cohort = maximise(function, signals, k, sample=sample_of(selector), rng=rng, needs=sorted(needs(selector)))
    else:
        cohort = selector.select(signals, k, rng=rng)
        function = objective_of(selector, signals, k) if isinstance(selector, HasObjective) else None
    cohort = require_cohort(cohort, signals, k, name)
    return cohort, {} if function is None else explanation(function, cohort)


def explanation(function: SetFunction, cohort: Ints) -> dict[str, Any]:
    """The value of the cohort, term by term, and the pick (from 1) at which H was saturated."""
    if not len(cohort):
        return {}
    table = explain(function, cohort)
    values: dict[str, float] = {}
    for term, total in zip(terms(function), table.sum(axis=0), strict=True):
        values[_term_name(term)] = values.get(_term_name(term), 0.0) + float(total)
    found: dict[str, Any] = {"objective": values}
    for column, term in enumerate(terms(function)):
        if isinstance(term, Scaled) and isinstance(term.function, Truncated):
            full = np.flatnonzero(np.cumsum(table[:, column]) >= term.factor * term.function.b * (1 - 1e-9))
            found["saturated_at"] = int(full[0]) + 1 if len(full) and term.factor else None
    return found


def _term_name(term: SetFunction) -> str:
    """G, H and g of the paper."""
    inner = term.function if isinstance(term, Scaled) else term
    return {"FacilityLocation": "G", "Truncated": "H", "Modular": "g"}.get(type(inner).__name__, type(inner).__name__)
