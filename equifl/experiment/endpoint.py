"""Which evaluations of a run a table takes its figures from, and how much each counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from equifl.experiment.measures import Row

Weighted: TypeAlias = list[tuple[Row, float]]  # records, and how much each counts
Runs: TypeAlias = Mapping[str, Mapping[int, Sequence[Row]]]  # evaluated records by selector and seed


def cycle(config: Mapping[str, Any]) -> int:
    """N / k: the rounds in which everybody could have been selected once.

    >>> cycle({"clients": 30, "per_round": 5}), cycle({"clients": 10, "per_round": [3, 4]})
    (6, 3)
    """
    each = config["per_round"]
    k = max(each) if isinstance(each, list | tuple) else each
    return max(1, -(-int(config["clients"] or 1) // int(k or 1)))


def last_evaluations(found: Runs, count: int) -> dict[str, dict[int, Weighted]]:
    """The last `count` evaluations of every run, each as much; of the second half of its evaluations at most.

    What a run was like when it had just begun is no part of what it comes to.
    """
    return {
        name: {seed: [(row, 1.0) for row in rows[-min(count, -(-len(rows) // 2)) :]] for seed, rows in runs.items()}
        for name, runs in found.items()
    }


def common_score(found: Runs, key: str) -> float:
    """The highest score that every run has had; `key` is its name in records."""
    return min(max(row[key] for row in rows) for runs in found.values() for rows in runs.values())


def matched_evaluations(found: Runs, key: str, score: float) -> dict[str, dict[int, Weighted]]:
    """Where every run first has this score: between two evaluations in proportion, or at the first one.

    >>> rows = [{"accuracy": 50.0}, {"accuracy": 70.0}, {"accuracy": 60.0}]
    >>> matched_evaluations({"rota": {0: rows}}, "accuracy", 65.0)["rota"][0]
    [({'accuracy': 50.0}, 0.25), ({'accuracy': 70.0}, 0.75)]
    """
    return {name: {seed: _crossing(rows, key, score) for seed, rows in runs.items()} for name, runs in found.items()}


def _crossing(rows: Sequence[Row], key: str, score: float) -> Weighted:
    place = next(i for i, row in enumerate(rows) if row[key] >= score)
    here = rows[place]
    if place == 0 or here[key] == score:
        return [(here, 1.0)]
    before = rows[place - 1]
    share = (score - before[key]) / (here[key] - before[key])
    return [(before, 1.0 - share), (here, share)]
