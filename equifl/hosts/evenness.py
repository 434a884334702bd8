"""How evenly the model serves the clients of a federation, and how evenly they take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from equifl.metrics import fairness, participation
from equifl.signals import Ints


def evenness(
    times_selected: Ints,
    named: Ints,
    found: Mapping[int, tuple[float, float]],
    cohorts: Sequence[Sequence[int]],
) -> tuple[dict[str, Any], dict[str, float]]:
    """The fairness entries of a round's row, and the same as metrics for the host.

    Args:
        times_selected: how often each client was selected.
        named: the clients with a permanent id, to which participation refers.
        found: accuracy and number of examples by client.
        cohorts: all cohorts so far.
    """
    part = _participation(times_selected, named, cohorts)
    row: dict[str, Any] = {"participation": part}
    metrics = {f"participation-{name}": value for name, value in part.items()}
    if found:
        accuracy, examples = np.array(list(found.values())).T
        even = fairness(accuracy)
        by_client = [round(100 * found[i][0], 4) if i in found else None for i in range(len(times_selected))]
        row |= {"accuracy": 100 * float(np.average(accuracy, weights=examples)), **even, "client_accuracy": by_client}
        metrics |= {name: even[name] for name in ("dissimilarity", "std", "gap", "worst10", "best10")}
    return row, metrics


def _participation(times_selected: Ints, named: Ints, cohorts: Sequence[Sequence[int]]) -> dict[str, float]:
    if not len(named):
        return participation([0], [])
    position = {client: i for i, client in enumerate(named.tolist())}
    theirs = [[position[client] for client in cohort if client in position] for cohort in cohorts]
    return participation(times_selected[named], theirs)
