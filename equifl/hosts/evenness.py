"""How evenly the model serves the clients of a federation, and how evenly they take part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equifl.hosts.attendance import Attendance
from equifl.hosts.part_of_clients import intervals
from equifl.metrics import fairness
from equifl.signals import Ints


def evenness(
    attendance: Attendance, times_selected: Ints, named: Ints, found: Mapping[int, tuple[float, float]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """The fairness entries of a round's row, and the same as metrics for the host.

    Args:
        attendance: who was present, and how long they waited, up to this round.
        times_selected: how often each client was selected.
        named: the ids that belong to a client.
        found: accuracy and number of examples by client.
    """
    part, counted = attendance.figures(times_selected, named)
    row: dict[str, Any] = {"participation": part, "participants": counted}
    metrics = {f"participation-{name}": value for name, value in part.items()} | {"participation-clients": counted}
    if found:
        accuracy, examples = np.array(list(found.values())).T
        even = fairness(accuracy)
        ids = range(int(named.max()) + 1)
        by_client = [round(100 * found[i][0], 4) if i in found else None for i in ids]
        row |= {"accuracy": 100 * float(np.average(accuracy, weights=examples)), **even, "client_accuracy": by_client}
        row |= {"evaluated": len(found), "intervals": intervals(accuracy, examples, len(named))}
        metrics |= {name: even[name] for name in ("dissimilarity", "std", "gap", "worst10", "best10")}
        metrics |= {"evaluated": len(found)} | {f"{name}-interval": one for name, one in row["intervals"].items()}
    return row, metrics
