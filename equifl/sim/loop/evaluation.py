"""What a record says of an evaluated model: its score, by client and over all, and participation so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.experiment.task_table import Score
from equifl.metrics import fairness, participation
from equifl.sim.loop.runs import Run


def evaluated(run: Run, scores: NDArray[Any], score: Score) -> dict[str, Any]:
    """The figures of one run, from the score of its model on every test example; accuracies in percent."""
    tests = run.environment.partition.test
    by_client = np.array([scores[test].mean(dtype=np.float64) for test in tests])
    factor, digits = (100.0, 4) if score.percent else (1.0, 6)
    return {
        score.key: factor * float(scores[np.concatenate(tests)].mean(dtype=np.float64)),
        **fairness(by_client, percent=score.percent),
        score.of_clients: [round(factor * float(value), digits) for value in by_client],
        "participation": participation(run.store.times_selected, run.cohorts),
    }
