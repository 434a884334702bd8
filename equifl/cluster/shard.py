"""One part of the clients, held by one worker: sums of gains over the clients of that part."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from equifl._numerics.bounds import Bounds, Survey
from equifl._numerics.centring import survey
from equifl._numerics.distances import UpdateDistances
from equifl._numerics.threads import tiles
from equifl.cluster.expression import with_locations
from equifl.maximizers import lazy_greedy
from equifl.objectives import FacilityLocation
from equifl.selectors.base import HasObjective, objective_of
from equifl.signals import Floats, Ints, Signals

_BLOCK_BYTES = 2**25  # of distances computed at a time


@dataclass(frozen=True)
class Part:
    """Which clients a shard holds, and where their updates are: all that a new worker needs to take over.

    Attributes:
        key: different for every selection: a worker that has another one loads its part first.
        first: the first client.
        last: the one after the last.
        file: name, type, offset and shape of the memory-mapped file, if the updates are in one.
        stored: else the reference of the part in the cluster's object store.
        memory_limit: bytes that a worker may take for distances.
        bounds: how updates are read, the same for all shards.
    """

    key: str
    first: int
    last: int
    file: tuple[str, str, int, tuple[int, int]] | None
    stored: Any
    memory_limit: int
    bounds: Bounds = field(default_factory=Bounds)

    def load(self, fetch: Any) -> Floats:
        """(last - first, d) the updates; `fetch` gets what is in the object store."""
        if self.file is None:
            return fetch(self.stored[0])
        path, dtype, offset, shape = self.file
        return np.memmap(path, dtype, "r", offset, shape)[self.first : self.last]


@dataclass(frozen=True)
class Request:
    """A request for gains. Rows that a worker has cached are not sent, unless it replies that they are missing.

    Attributes:
        members: ids of the cohort so far.
        member_rows: updates of the last of them, or of all.
        candidates: ids of the clients whose gains are computed.
        candidate_rows: their updates, or none if they were announced.
    """

    members: Ints
    member_rows: Floats
    candidates: Ints
    candidate_rows: Floats


class Shard:
    """A worker's state, which can be rebuilt from a `Part` and a whole `Request`.

    >>> part = Part("a", 0, 3, None, [np.array([[0.0], [1.0], [10.0]])], 2**20)
    >>> shard = Shard(fetch=lambda stored: stored)
    >>> nobody, one = np.zeros(0, int), np.array([1])
    >>> shard.gains(part, 10.0, Request(nobody, np.zeros((0, 1)), one, np.array([[1.0]]))).round(3).tolist()
    [32.667]
    """

    def __init__(self, fetch: Any) -> None:
        self._fetch = fetch
        self._key = ""

    def survey(self, part: Part, bounds: Bounds, limit: float) -> tuple[Survey, int]:
        """The mean update and the largest lengths, and the number of clients."""
        self._load(part)
        return survey(self._updates, self._known, bounds, limit), len(self._ids)

    def sphere(self, part: Part) -> tuple[Floats, float]:
        """A centre of the clients here, and how far the farthest is from it."""
        self._load(part)
        return self._distances.centre, float(self._distances.radii().max())

    def total(self, part: Part, rows: Floats) -> float:
        """The sum of the distances from these updates to all clients here."""
        self._load(part)
        return float(sum(block.sum(dtype=np.float64) for block in self._blocks(rows)))

    def foresee(self, part: Part, ids: Ints, rows: Floats) -> None:
        """Compute in advance the distances of later requests: together they cost a fraction."""
        self._load(part)
        self._table_ids, self._table = ids[:0], np.zeros((0, 0), np.float32)  # before more memory is taken
        self._table_ids, self._table = ids, self._distances.rows_of(rows)

    def gains(self, part: Part, reach: float, request: Request) -> Floats | None:
        """For each candidate j the sum over clients i here of max(0, nearest_i - D_ij); None = rows are missing.

        `reach` is an upper bound of any client's distance from the mean of the clients here.
        """
        self._load(part)
        announced = len(request.candidate_rows) < len(request.candidates)
        missing = announced and not np.isin(request.candidates, self._table_ids).all()
        if not self._catch_up(request, reach) or missing:
            return None
        if not announced:
            saved = [self._saved(block) for block in self._blocks(request.candidate_rows)]
            return np.concatenate([np.zeros(0), *saved])
        places = np.searchsorted(self._table_ids, request.candidates)
        gains = np.empty(len(places))
        for tile in tiles(range(len(places)), 4 * len(self._ids)):
            gains[tile] = self._saved(self._table[places[tile]])
        return gains

    def value(self, part: Part, reach: float, members: Ints, rows: Floats) -> float:
        """The sum over clients here of the distance saved by these members, compared with an empty cohort."""
        self._load(part)
        self._catch_up(Request(members, rows, members[:0], rows[:0]), reach)
        return float(np.sum(self._nobody(reach) - self._nearest, dtype=np.float64))

    def pick(self, part: Part, selector: HasObjective, fields: dict[str, Any], k: int, everyone: int) -> Ints:
        """Round one of GreeDi: k of the clients here by lazy greedy, which represent `everyone`."""
        self._load(part)
        signals = Signals(updates=self._updates, **fields)
        share = everyone / len(self._ids)

        def weighed(location: FacilityLocation) -> Any:
            return share * location

        function = with_locations(objective_of(selector, signals, k), weighed)
        candidates = np.flatnonzero(signals.available & function.known)
        return lazy_greedy(function, k, candidates=candidates) + part.first

    def call(self, part: Part, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Call a function that needs none of the shard's state."""
        return function(*arguments)

    def process(self) -> int:
        """The worker's process id."""
        return os.getpid()

    def forget(self, part: Part) -> None:
        """Free the memory of a finished selection, here and in the object store."""
        if self._key == part.key:
            del self._updates, self._table
            self.__dict__.pop("_distances", None)
            self._key = ""

    def _load(self, part: Part) -> None:
        self._bounds = part.bounds
        if self._key == part.key:
            return
        self._updates = part.load(self._fetch)
        self._ids = np.flatnonzero(~np.isnan(self._updates[:, 0]))
        self._known = None if len(self._ids) == len(self._updates) else self._ids
        self._copy_limit = part.memory_limit // 2
        self.__dict__.pop("_distances", None)
        self._members: list[int] | None = None
        self._table_ids, self._table = np.zeros(0, np.int64), np.zeros((0, 0), np.float32)
        self._key = part.key

    @cached_property
    def _distances(self) -> UpdateDistances:
        """Built when first used: `survey` does not need it."""
        return UpdateDistances(self._updates, self._known, bounds=self._bounds, copy_limit=self._copy_limit)

    def _catch_up(self, request: Request, reach: float) -> bool:
        """Update the nearest distances with new members; False if rows are missing for that."""
        members = request.members.tolist()
        new = len(members) - len(request.member_rows)
        if self._members == members:
            return True
        if new == 0:
            self._nearest = self._nobody(reach)
        elif self._members != members[:new]:
            return False
        for member, row in zip(members[new:], request.member_rows, strict=True):
            np.minimum(self._nearest, self._to(member, row), out=self._nearest)
        self._members = members
        return True

    def _nobody(self, reach: float) -> Floats:
        """The distance at which each client here counts as not represented: no client is farther."""
        return self._distances.radii() + np.float32(reach)

    def _to(self, member: int, row: Floats) -> Floats:
        at = int(np.searchsorted(self._table_ids, member))
        if at < len(self._table_ids) and self._table_ids[at] == member:
            return self._table[at]
        return self._distances.rows_of(row[None])[0]

    def _blocks(self, rows: Floats) -> Any:
        step = max(1, _BLOCK_BYTES // (4 * len(self._ids)))
        return (self._distances.rows_of(rows[start : start + step]) for start in range(0, len(rows), step))

    def _saved(self, distances: Floats) -> Floats:
        """As `FacilityLocation.gains`, but summed in float64, so that the partition into shards hardly matters."""
        nearer = np.minimum(self._nearest, distances)
        np.subtract(self._nearest, nearer, out=nearer)
        return nearer.sum(axis=1, dtype=np.float64)
