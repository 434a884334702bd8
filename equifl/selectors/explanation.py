"""Why a cohort was chosen: what it is worth to the selector, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np

from equifl.objectives import Scaled, SetFunction, Truncated, explain, terms
from equifl.selectors._common import MaximisesObjective, maximise
from equifl.selectors.base import HasObjective, Selector, require_cohort, sample_of
from equifl.signals import Ints, Signals


def select_and_explain(
    selector: Selector, signals: Signals, k: int, *, rng: np.random.Generator, name: str
) -> tuple[Ints, dict[str, Any]]:
    """The cohort, checked, and its `explanation`; the objective, which takes half of the time, is made once.

    Args:
        selector: whose choice is wanted.
        signals: what it looks at.
        k: how many clients, no more than are available.
        rng: what its random choices are drawn from.
        name: what the selector is called if its choice is refused.
    """
    function: SetFunction | None
    if isinstance(selector, MaximisesObjective) and type(selector).select is MaximisesObjective.select:
        function = selector.objective(signals)
        cohort = maximise(function, signals, k, sample=sample_of(selector), rng=rng)
    else:
        cohort = selector.select(signals, k, rng=rng)
        function = selector.objective(signals) if isinstance(selector, HasObjective) else None
    cohort = require_cohort(cohort, signals, k, name)
    return cohort, {} if function is None else explanation(function, cohort)


def explanation(function: SetFunction, cohort: Ints) -> dict[str, Any]:
    """What the cohort is worth, term by term, and the pick (from 1) with which H was saturated."""
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
