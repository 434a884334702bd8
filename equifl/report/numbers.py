"""What the figures show, as plain numbers: everything is computed here, and nothing is drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.metrics import interval
from equifl.report.table import Row

Lanes = Mapping[int, Sequence[Row]]  # a selector's records by seed, in the order of rounds


@dataclass(frozen=True)
class Series:
    """A value over rounds: mean over seeds and half-width of its 95 % interval, nan where one seed knows it."""

    rounds: list[int]  # played by then: the first is 1
    mean: list[float]
    half_width: list[float]


@dataclass(frozen=True)
class Clients:
    """Each client's accuracy in the last evaluated round, mean over seeds, lowest first; `worst` of them are 10 %."""

    ids: list[int]
    accuracy: list[float]
    worst: int


@dataclass(frozen=True)
class Participation:
    """Who took part: clients x rounds of one seed, 1 = selected; and how often each client was, over all seeds."""

    seed: int
    selected: NDArray[np.uint8]
    counts: list[int]


@dataclass(frozen=True)
class Point:
    """Where one seed ended."""

    seed: int
    accuracy: float
    dissimilarity: float


@dataclass(frozen=True)
class Selector:
    """All that is drawn of one selector."""

    accuracy: Series
    dissimilarity: Series
    plane: list[Point]
    clients: Clients
    participation: Participation
    terms: dict[str, Series]  # G, H, g: what the cohort was worth in each; empty without an objective
    down: Series  # bytes since the beginning
    up: Series


@dataclass(frozen=True)
class Numbers:
    """All that is drawn of a run, selectors in the order of its configuration."""

    rounds: int
    played: int
    evaluated: int
    seeds: int
    clients: int
    selectors: dict[str, Selector]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to play."""
        return self.played == self.rounds


def whole_rounds(config: Mapping[str, Any], rows: Iterable[Row]) -> list[Row]:
    """The records of rounds that every selector and seed has played: a run that goes on may be writing the next."""
    rows = list(rows)
    played = Counter(row["round"] for row in rows)
    lanes = len(config["selectors"]) * len(config["seeds"])
    return [row for row in rows if played[row["round"]] == lanes]


def make_numbers(config: Mapping[str, Any], rows: Iterable[Row]) -> Numbers:
    """From a run's configuration and records; those of a round that is not whole are left out."""
    rows = whole_rounds(config, rows)
    evaluated = max((row["round"] + 1 for row in rows if "accuracy" in row), default=0)
    if not evaluated:
        raise ValueError("records: no evaluated round yet")
    lanes: dict[str, dict[int, list[Row]]] = {
        name: {seed: [] for seed in config["seeds"]} for name in config["selectors"]
    }
    for row in rows:
        lanes[row["selector"]][row["seed"]].append(row)
    played = max(row["round"] for row in rows) + 1
    clients = config["clients"] or _clients_seen(rows)
    return Numbers(
        rounds=config["rounds"] or played,
        played=played,
        evaluated=evaluated,
        seeds=len(config["seeds"]),
        clients=clients,
        selectors={name: _selector(by_seed, clients) for name, by_seed in lanes.items()},
    )


def _clients_seen(rows: Iterable[Row]) -> int:
    """How many there are in a live federation, which nobody knows beforehand."""
    return max(max([len(row.get("client_accuracy", ())), *(client + 1 for client in row["cohort"])]) for row in rows)


def _selector(lanes: Lanes, clients: int) -> Selector:
    finals = {seed: [row for row in rows if "accuracy" in row][-1] for seed, rows in lanes.items()}
    terms = dict.fromkeys(term for rows in lanes.values() for row in rows for term in row.get("objective") or {})
    return Selector(
        accuracy=_series(lanes, lambda row: row.get("accuracy")),
        dissimilarity=_series(lanes, lambda row: row.get("dissimilarity")),
        plane=[Point(seed, row["accuracy"], row["dissimilarity"]) for seed, row in finals.items()],
        clients=_clients([row["client_accuracy"] for row in finals.values()]),
        participation=_participation(lanes, clients),
        terms={term: _series(lanes, _term(term)) for term in terms},
        down=_total(lanes, "bytes_down"),
        up=_total(lanes, "bytes_up"),
    )


def _series(lanes: Lanes, read: Callable[[Row], float | None]) -> Series:
    """Of the rounds in which at least one seed knows the value, over the seeds that do."""
    found: dict[int, list[float]] = {}
    for rows in lanes.values():
        for row in rows:
            value = read(row)
            if value is not None:
                found.setdefault(row["round"] + 1, []).append(value)
    estimates = {round: interval(found[round]) for round in sorted(found)}
    return Series(list(estimates), [mean for mean, _ in estimates.values()], [half for _, half in estimates.values()])


def _term(term: str) -> Callable[[Row], float | None]:
    return lambda row: (row.get("objective") or {}).get(term)


def _total(lanes: Lanes, key: str) -> Series:
    """Bytes since the beginning."""
    totals = {}
    for seed, rows in lanes.items():
        sums = np.cumsum([row[key] for row in rows]).tolist()
        totals[seed] = [{"round": row["round"], "total": total} for row, total in zip(rows, sums, strict=True)]
    return _series(totals, lambda row: row["total"])


def _clients(accuracies: list[list[float | None]]) -> Clients:
    mean = np.mean(np.array(accuracies, np.float64), axis=0)
    order = np.argsort(mean, kind="stable")
    order = order[~np.isnan(mean[order])]  # in a live federation not everyone evaluates
    return Clients(order.tolist(), mean[order].tolist(), max(1, math.floor(len(order) / 10)))


def _participation(lanes: Lanes, clients: int) -> Participation:
    seed, shown = next(iter(lanes.items()))
    selected = np.zeros((clients, len(shown)), np.uint8)
    for column, row in enumerate(shown):
        selected[row["cohort"], column] = 1
    cohorts = [client for rows in lanes.values() for row in rows for client in row["cohort"]]
    return Participation(seed, selected, np.bincount(cohorts, minlength=clients).tolist())
