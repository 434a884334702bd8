"""Which evaluations of a run a table takes its figures from, and how much each counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from equifl.experiment.measures import Row
from equifl.experiment.names import display_name, listed

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


def as_far(
    evaluated: dict[str, dict[int, list[Row]]],
) -> tuple[dict[str, dict[int, list[Row]]], list[str]]:
    """The runs of each selector without those that end before its others, and notes on what ends where.

    A folder that is still growing, or was joined to one with more rounds, has such runs: a mean over both would be of
    no round at all.
    """
    ends = {name: {seed: of[-1]["round"] + 1 for seed, of in runs.items()} for name, runs in evaluated.items()}
    last = {name: max(of.values()) for name, of in ends.items()}
    notes = []
    for name, of in ends.items():
        short = [str(seed) for seed, end in of.items() if end < last[name]]
        if short:
            many = f"seeds {listed(short)}, which end" if len(short) > 1 else f"seed {short[0]}, which ends"
            notes.append(f"{display_name(name)} is without {many} before round {last[name]}.")
    if len(set(last.values())) > 1:
        where = listed([f"{display_name(name)} after {end}" for name, end in last.items()])
        notes.append(f"Evaluated last after different numbers of rounds: {where}.")
    kept = {n: {seed: of for seed, of in runs.items() if ends[n][seed] == last[n]} for n, runs in evaluated.items()}
    return kept, notes
