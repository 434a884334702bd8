"""How evenly the model serves the clients of a federation, and how evenly they take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from equifl.flower.clients import Clients
from equifl.metrics import fairness, participation


def evenness(
    clients: Clients, found: Mapping[int, tuple[float, float]], cohorts: Sequence[Sequence[int]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """The fairness entries of a round's row, and those of Flower's history.

    Args:
        clients: all clients.
        found: accuracy and number of examples by client.
        cohorts: all cohorts so far.
    """
    part = _participation(clients, cohorts)
    row: dict[str, Any] = {"participation": part}
    metrics = {f"participation-{name}": value for name, value in part.items()}
    if found:
        accuracy, examples = np.array(list(found.values())).T
        even = fairness(accuracy)
        by_client = [round(100 * found[i][0], 4) if i in found else None for i in range(len(clients))]
        row |= {"accuracy": 100 * float(np.average(accuracy, weights=examples)), **even, "client_accuracy": by_client}
        metrics |= {name: even[name] for name in ("dissimilarity", "std", "gap", "worst10", "best10")}
    return row, metrics


def _participation(clients: Clients, cohorts: Sequence[Sequence[int]]) -> dict[str, float]:
    """Participation of the clients with a permanent id."""
    if not len(clients):
        return participation([0], [])
    taken = clients.taken()
    position = {client: i for i, client in enumerate(taken.tolist())}
    theirs = [[position[client] for client in cohort if client in position] for cohort in cohorts]
    return participation(clients.signals(None, []).times_selected[taken], theirs)
