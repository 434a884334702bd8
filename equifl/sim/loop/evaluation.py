"""What a record says of an evaluated model: accuracy, by client and over all, and participation so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.metrics import fairness, participation
from equifl.sim.loop.runs import Run


def evaluated(run: Run, scores: NDArray[Any]) -> dict[str, Any]:
    """The figures of one run, from the score of its model on every test example."""
    tests = run.environment.partition.test
    by_client = np.array([scores[test].mean(dtype=np.float64) for test in tests])
    return {
        "accuracy": 100.0 * float(scores[np.concatenate(tests)].mean(dtype=np.float64)),
        **fairness(by_client),
        "client_accuracy": [round(100.0 * float(value), 4) for value in by_client],
        "participation": participation(run.store.times_selected, run.cohorts),
    }
