"""Why a cohort was chosen: what it is worth to the selector, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np

from equifl.objectives import Scaled, SetFunction, Truncated, explain, terms
from equifl.selectors.rules import HasObjective, Selector
from equifl.signals import Ints, Signals


def explanation(selector: Selector, signals: Signals, cohort: Ints) -> dict[str, Any]:
    """What the cohort is worth, term by term, and the pick (from 1) with which H was saturated."""
    if not isinstance(selector, HasObjective) or not len(cohort):
        return {}
    function = selector.objective(signals)
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
