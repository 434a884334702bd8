"""The numbers in the figures: all are computed here, and nothing is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.experiment.measures import Row
from equifl.experiment.task_table import NOT_EVALUATED, Score, is_evaluated, score_of
from equifl.statistics import interval

BySeed = Mapping[int, Sequence[Row]]  # a selector's records by seed, in the order of rounds

# Who records a live federation, by the table of its settings in the configuration.
HOSTS = {"flower": "equifl.flower.FairSelection", "nvflare": "equifl.nvflare.FairFedAvg"}


@dataclass(frozen=True)
class Series:
    """A value over rounds: mean over seeds and half-width of its 95 % interval, nan with a single seed."""

    rounds: list[int]  # played by then: the first is 1
    mean: list[float]
    half_width: list[float]


@dataclass(frozen=True)
class Ranked:
    """A value of every client, in the order of the values: mean over seeds and half-width of its 95 % interval.

    Where a client is the same in every seed, the mean is the client's, and `ids` names it. Elsewhere every seed has
    clients of its own: they are sorted within each seed, the mean is over those of one rank, and `ids` is None.
    """

    ids: list[int] | None
    mean: list[float]
    half_width: list[float]

    @property
    def tenth(self) -> int:
        """How many clients are 10 % of them, at least one, as `equifl.metrics.worst` counts them."""
        return max(1, len(self.mean) // 10)

    def rows(self) -> list[list[Any]]:
        """Rank, client (empty where every seed has its own), mean and half-width, a row a client."""
        ids = self.ids if self.ids is not None else [""] * len(self.mean)
        return [[i + 1, *row] for i, row in enumerate(zip(ids, self.mean, self.half_width, strict=True))]


@dataclass(frozen=True)
class Participation:
    """Who took part: clients x rounds of one seed, 1 = selected; and how often, most often selected clients first."""

    seed: int
    selected: NDArray[np.uint8]
    counts: Ranked


@dataclass(frozen=True)
class ClientPoint:
    """One client of one seed in the last evaluated round: how often it was selected by then, and its score."""

    seed: int
    client: int
    times: int
    score: float


@dataclass(frozen=True)
class Point:
    """The last evaluated round of one seed."""

    seed: int
    score: float
    dissimilarity: float


@dataclass(frozen=True)
class Selector:
    """The numbers drawn for one selector."""

    score: Series
    dissimilarity: Series
    worst10: Series
    plane: list[Point]
    clients: Ranked  # score in the last evaluated round, lowest first
    scatter: list[ClientPoint]
    participation: Participation
    terms: dict[str, Series]  # G, H, g: the value of the cohort in each; empty without an objective
    down: Series  # bytes since the beginning
    up: Series


@dataclass(frozen=True)
class Numbers:
    """The numbers drawn for an experiment, selectors in the order of its configuration."""

    rounds: int
    played: int
    evaluated: int
    seeds: int
    clients: int
    score: Score  # what is evaluated
    same_clients: bool  # whether a client is the same in every seed; if not, only ranks can be compared
    selectors: dict[str, Selector]
    names: dict[int, str]  # of clients, where a live federation knows them

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.played == self.rounds

    def called(self, clients: Sequence[int] | None) -> Sequence[int | str] | None:
        """These clients with their names, where there are any."""
        if clients is None or not self.names:
            return clients
        return [f"{client}: {self.names[client]}" if client in self.names else client for client in clients]


def make_numbers(config: Mapping[str, Any], rows: Iterable[Row]) -> Numbers:
    """From a run's configuration and the records of its whole rounds."""
    rows = list(rows)
    evaluated = max((row["round"] + 1 for row in rows if is_evaluated(row)), default=0)
    if not evaluated:
        raise ValueError(NOT_EVALUATED)
    records: dict[str, dict[int, list[Row]]] = {name: {} for name in config["selectors"]}
    for row in rows:
        records[row["selector"]].setdefault(row["seed"], []).append(row)
    records = {name: by_seed for name, by_seed in records.items() if any(map(_are_evaluated, by_seed.values()))}
    played = max(row["round"] for row in rows) + 1
    names, score = _names(rows), score_of(config)
    ids = range(config["clients"]) if config["clients"] else _clients_seen(rows, names)
    natural = config["data"].get("partition", {}).get("kind") == "natural"
    same = len(config["seeds"]) == 1 or not HOSTS.keys().isdisjoint(config) or natural
    return Numbers(
        rounds=config["rounds"] or played,
        played=played,
        evaluated=evaluated,
        seeds=len(config["seeds"]),
        clients=len(ids),
        score=score,
        same_clients=same,
        selectors={name: _selector(by_seed, ids, same, score) for name, by_seed in records.items()},
        names={client: name for client, name in names.items() if name},
    )


def _names(rows: Iterable[Row]) -> dict[int, str]:
    """What clients are called by now: a row has the names that are new; "" = an id that belongs to nobody any more."""
    return {int(client): name for row in rows for client, name in row.get("names", {}).items()}


def _are_evaluated(rows: Sequence[Row]) -> bool:
    return any(map(is_evaluated, rows))


def _clients_seen(rows: Iterable[Row], names: Mapping[int, str]) -> Sequence[int]:
    """The ids of the clients of a live federation, from its records."""
    seen = max(max([len(row.get("client_accuracy", ())), *(client + 1 for client in row["cohort"])]) for row in rows)
    return [client for client in range(seen) if names.get(client) != ""]


def _selector(by_seed: BySeed, ids: Sequence[int], same: bool, score: Score) -> Selector:
    by_seed = {seed: rows for seed, rows in by_seed.items() if _are_evaluated(rows)}
    finals = {seed: [row for row in rows if is_evaluated(row)][-1] for seed, rows in by_seed.items()}
    terms = dict.fromkeys(term for rows in by_seed.values() for row in rows for term in row.get("objective") or {})
    return Selector(
        score=_series(by_seed, lambda row: row.get(score.key)),
        dissimilarity=_series(by_seed, lambda row: row.get("dissimilarity")),
        worst10=_series(by_seed, lambda row: row.get("worst10")),
        plane=[Point(seed, row[score.key], row["dissimilarity"]) for seed, row in finals.items()],
        clients=_ranked([row[score.of_clients] for row in finals.values()], same),
        scatter=[
            point
            for seed, row in finals.items()
            for point in _points(seed, row[score.of_clients], row["round"], by_seed[seed])
        ],
        participation=_participation(by_seed, ids, same),
        terms={term: _series(by_seed, _term(term)) for term in terms},
        down=_total(by_seed, "bytes_down"),
        up=_total(by_seed, "bytes_up"),
    )


def _series(by_seed: BySeed, read: Callable[[Row], float | None]) -> Series:
    """The value in each round with at least one known value, over the seeds that have one."""
    found: dict[int, list[float]] = {}
    for rows in by_seed.values():
        for row in rows:
            value = read(row)
            if value is not None:
                found.setdefault(row["round"] + 1, []).append(value)
    estimates = {round: interval(found[round]) for round in sorted(found)}
    return Series(list(estimates), [mean for mean, _ in estimates.values()], [half for _, half in estimates.values()])


def _term(term: str) -> Callable[[Row], float | None]:
    return lambda row: (row.get("objective") or {}).get(term)


def _total(by_seed: BySeed, key: str) -> Series:
    """Bytes since the beginning."""
    totals = {}
    for seed, rows in by_seed.items():
        sums = np.cumsum([row[key] for row in rows]).tolist()
        totals[seed] = [{"round": row["round"], "total": total} for row, total in zip(rows, sums, strict=True)]
    return _series(totals, lambda row: row["total"])


def _ranked(by_seed: Sequence[Sequence[float | None]], same: bool, *, descending: bool = False) -> Ranked:
    """From one value a client for each seed; None and what a list lacks at its end are unknown, and left out.

    In a Flower federation some clients do not evaluate, and clients may join.
    """
    values = np.full((len(by_seed), max(map(len, by_seed))), np.nan)
    for row, given in zip(values, by_seed, strict=True):
        row[: len(given)] = np.array(given, np.float64)
    sign = -1 if descending else 1
    if not same:
        values = sign * np.sort(sign * values, axis=1)  # nan last
    known = [(column, interval(of[~np.isnan(of)])) for column, of in enumerate(values.T) if not np.isnan(of).all()]
    if same:
        known.sort(key=lambda pair: sign * pair[1][0])
    ids = [column for column, _ in known] if same else None
    return Ranked(ids, [mean for _, (mean, _) in known], [half for _, (_, half) in known])


def _points(seed: int, scores: Sequence[float | None], last: int, rows: Sequence[Row]) -> list[ClientPoint]:
    """Of every client that evaluated in the last evaluated round."""
    times = Counter(client for row in rows if row["round"] <= last for client in row["cohort"])
    known = [(client, value) for client, value in enumerate(scores) if value is not None and not np.isnan(value)]
    return [ClientPoint(seed, client, times[client], value) for client, value in known]


def _participation(by_seed: BySeed, ids: Sequence[int], same: bool) -> Participation:
    seed, shown = next(iter(by_seed.items()))
    selected = np.zeros((max(ids, default=-1) + 1, len(shown)), np.uint8)
    for column, row in enumerate(shown):
        selected[[client for client in row["cohort"] if client < len(selected)], column] = 1
    times = [Counter(client for row in rows for client in row["cohort"]) for rows in by_seed.values()]
    known = set(ids)
    counts = [[of[client] if client in known else None for client in range(len(selected))] for of in times]
    return Participation(seed, selected, _ranked(counts, same, descending=True))
