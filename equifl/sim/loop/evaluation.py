"""What a record says of an evaluated model: scores, losses, participation; not what can be made of these later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.experiment.task_table import Score
from equifl.metrics import fairness, participation
from equifl.signals import Floats, Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.runs import Run

_DIGITS = 5  # of a loss


class Evaluation:
    """Turns scores and losses into figures.

    Args:
        dataset: whose test examples are scored. Where these have classes, `class_accuracy` and the clients' mixtures
            of classes are recorded, from which accuracies without sampling noise follow (`metrics.expected_values`).
        score: what the scores are; accuracies are in percent.
    """

    def __init__(self, dataset: Dataset, score: Score) -> None:
        self._score, self._classes = score, dataset.classes or 0
        plain = score.percent and self._classes > 0 and dataset.y_test.ndim == 1
        self._labels: Ints | None = dataset.y_test if plain else None
        self._counts = np.bincount(self._labels, minlength=self._classes) if self._labels is not None else np.zeros(0)

    def mixtures(self, run: Run) -> dict[str, Any]:
        """`test_classes`: how many test examples of each class each client of a run has; for its first record."""
        if self._labels is None:
            return {}
        tests = run.environment.partition.test
        return {"test_classes": [np.bincount(self._labels[test], minlength=self._classes).tolist() for test in tests]}

    def figures(self, run: Run, scores: NDArray[Any], losses: Floats) -> dict[str, Any]:
        """Those of one run, from the score of its model on every test example and the training loss of each client."""
        tests, score = run.environment.partition.test, self._score
        by_client = np.array([scores[test].mean(dtype=np.float64) for test in tests])
        factor, digits = (100.0, 4) if score.percent else (1.0, 6)
        return {
            score.key: factor * float(scores[np.concatenate(tests)].mean(dtype=np.float64)),
            **fairness(by_client, percent=score.percent),
            score.of_clients: [round(factor * float(value), digits) for value in by_client],
            "participation": participation(run.store.times_selected, run.cohorts),
            "client_loss": _short(losses),
            **self._by_class(scores),
        }

    def _by_class(self, scores: NDArray[Any]) -> dict[str, Any]:
        """`class_accuracy`: of each class over the whole test set; None where it has no example."""
        if self._labels is None:
            return {}
        right = np.bincount(self._labels, weights=scores, minlength=self._classes)
        points = zip(right.tolist(), self._counts.tolist(), strict=True)
        return {"class_accuracy": [round(100.0 * sum_ / count, 4) if count else None for sum_, count in points]}


def _short(losses: Floats) -> Sequence[float]:
    """Losses with five digits: a record has one for every client."""
    return [float(f"{loss:.{_DIGITS}g}") for loss in losses.tolist()]
