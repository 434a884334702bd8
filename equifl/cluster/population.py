"""All clients, as shards on the workers of a cluster: calls to every shard, and sums of their results."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from equifl._numerics.bounds import Bounds, Survey, bounds_and_mean, sampled
from equifl._numerics.mapped import mapping
from equifl.cluster.session import connection, stored
from equifl.cluster.shard import Part, Request
from equifl.cluster.watch import ClusterLostError
from equifl.cluster.workers import DEATHS, WorkerDiedError, end_worker, results, start_workers, worker
from equifl.objectives import Scale, SetFunction, value_unit
from equifl.signals import Bools, Floats, Ints, Signals

log = logging.getLogger("equifl")

_REFERENCES = 1024  # as for one machine: clients from whom the mean distance is measured


@dataclass(frozen=True)
class Call:
    """A call to the worker of a shard: what was asked, of whom, and where the result will be."""

    shard: int
    method: str
    arguments: list[Any]
    worker: Any
    result: Any


class Population:
    """The known clients, in shards of equal size.

    Workers cache what they were sent. If a worker dies, another takes over, is asked again what was not answered, and
    is sent what it lacks. So the results do not depend on failures.

    Args:
        signals: with updates of at least one client. If these are a memory-mapped file, workers read it, and every
            machine must see it under the same name; else each shard is put into the cluster's object store.
        shards: into how many parts.
        memory_limit: bytes that each worker may take for distances.
        wait_limit: seconds to wait for a free CPU where a worker has to be started.
    """

    def __init__(self, signals: Signals, shards: int, memory_limit: int, wait_limit: float) -> None:
        assert signals.updates is not None
        self.updates = signals.updates
        self.known: Bools = signals.knows_update
        self.memory_limit, self._wait_limit = memory_limit, wait_limit
        start_workers(shards, wait_limit)
        ids = np.flatnonzero(self.known)
        cuts = [len(ids) * s // shards for s in range(shards + 1)]
        ranges = [(int(ids[a]), int(ids[b - 1]) + 1) for a, b in itertools.pairwise(cuts)]
        file, key = _file(self.updates), uuid.uuid4().hex
        self.parts = [
            Part(key, a, b, file, stored(self.updates[a:b]) if file is None else None, memory_limit) for a, b in ranges
        ]
        self.largest = max(b - a for a, b in itertools.pairwise(cuts))
        self.count = len(ids)
        self.bounds, self.mean = bounds_and_mean(self.updates[sampled(ids)], self._survey)
        self.parts = [replace(part, bounds=self.bounds) for part in self.parts]

    def ask(self, method: str, *arguments: Any, of: Iterable[int] | None = None) -> list[Any]:
        """The results of shards `of` (None = all); an argument that is a list has one entry a shard."""
        return self.wait(self.start(method, *arguments, of=of))

    def wait(self, calls: list[Call]) -> list[Any]:
        """Wait for the results of `start`."""
        try:
            return results([call.result for call in calls])
        except WorkerDiedError:
            return [self._survived(call) for call in calls]

    def start(self, method: str, *arguments: Any, of: Iterable[int] | None = None) -> list[Call]:
        """As `ask`, without waiting: returns pending calls, which a worker runs in that order."""
        calls = []
        for s in range(len(self.parts)) if of is None else of:
            mine = [argument[s] if isinstance(argument, list) else argument for argument in arguments]
            calls.append(self._call(s, method, mine))
        return calls

    def close(self) -> None:
        """Free the workers' memory, if the cluster is still there."""
        with suppress(ClusterLostError):
            self.start("forget")

    def _call(self, shard: int, method: str, arguments: list[Any]) -> Call:
        connection()  # Ray ends this process if it stores long arguments on a node that is gone
        asked = worker(shard)
        return Call(shard, method, arguments, asked, getattr(asked, method).remote(self.parts[shard], *arguments))

    def _survived(self, call: Call) -> Any:
        """The result of a call, from its worker or one that takes over."""
        for _ in range(DEATHS):
            try:
                return results([call.result])[0]
            except WorkerDiedError as error:
                reason = error
                if worker(call.shard) is call.worker:  # and nobody has taken over yet
                    log.warning("ray: the worker of shard %d died (%s); another takes over", call.shard, error)
                    end_worker(call.shard)
                start_workers(len(self.parts), self._wait_limit)
                call = self._call(call.shard, call.method, call.arguments)
        raise OSError(f"ray: {DEATHS} workers in a row died over {call.method!r} of shard {call.shard} ({reason})")

    def _survey(self, bounds: Bounds, limit: float) -> Survey:
        """Of all clients; the reach is an upper bound."""
        replies = self.ask("survey", bounds, limit)
        mean = sum((count / self.count * seen.mean for seen, count in replies), np.zeros(self.updates.shape[1]))
        reach = max(seen.reach + float(np.abs(seen.mean - mean).max()) for seen, _ in replies)
        plausible, longest = (max(getattr(seen, name) for seen, _ in replies) for name in ("plausible", "longest"))
        return Survey(mean, reach, plausible, longest)

    def each(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """As `map`, on the workers: one call each at a time, so that no more is sent ahead than they can work on."""
        calls: list[Any] = []
        for arguments in zip(*columns, strict=True):
            calls += self.start("call", function, arguments, of=[len(calls)])
            if len(calls) == len(self.parts):
                yield from self.wait(calls)
                calls = []
        yield from self.wait(calls)

    @cached_property
    def reaches(self) -> list[float]:
        """An upper bound of any client's distance from each shard's centre, by the triangle inequality."""
        spheres = self.ask("sphere")
        return [
            max(float(np.linalg.norm(centre - other)) + radius for other, radius in spheres)
            * (1 + 1e-5)  # more than the rounding error
            for centre, _ in spheres
        ]

    def mean_distance(self) -> float:
        """Over all pairs with the same 1,024 evenly spaced clients as on one machine."""
        references = np.flatnonzero(self.known)[:: -(-self.count // _REFERENCES)]
        return sum(self.ask("total", self.updates[references])) / (len(references) * self.count)

    def gains(self, members: Ints, candidates: Ints, announced: bool) -> Floats:
        """The gain of each candidate, summed over all shards."""
        rows = self.updates[candidates]
        short = Request(members, self.updates[members[-1:]], candidates, rows[:0] if announced else rows)
        replies = self.ask("gains", self.reaches, short)
        behind = [s for s, reply in enumerate(replies) if reply is None]
        if behind:
            whole = Request(members, self.updates[members], candidates, rows)
            for s, reply in zip(behind, self.ask("gains", self.reaches, whole, of=behind), strict=True):
                replies[s] = reply
        return np.sum(replies, axis=0)


class SpreadFacilityLocation(SetFunction):
    """`FacilityLocation`, each shard adding up the gains of its own clients; the state is the ids of the members."""

    monotone = True

    def __init__(self, population: Population, scale: Scale) -> None:
        self.n, self.known = len(population.known), population.known
        self._population = population
        self._announced = np.zeros(0, np.int64)
        self._mean = (scale == "relative" and population.mean_distance()) or 1.0
        self._unit = 1.0 if scale == "relative" else value_unit(population.bounds.unit)

    def __call__(self, subset: ArrayLike) -> float:
        members = np.unique(np.asarray(subset, np.int64))
        members = members[self.known[members]]
        rows = self._population.updates[members]
        return sum(self._population.ask("value", self._population.reaches, members, rows)) / self._mean * self._unit

    def init(self) -> Ints:
        return np.zeros(0, np.int64)

    def gains(self, state: Ints, candidates: Ints) -> Floats:
        gains = np.zeros(len(candidates))
        known = candidates[self.known[candidates]]
        announced = bool(np.isin(known, self._announced).all())
        gains[self.known[candidates]] = self._population.gains(state, known, announced)
        return gains / self._mean * self._unit

    def foresee(self, steps: Iterable[Ints]) -> None:
        room = self._population.memory_limit // 2 // (4 * self._population.largest)
        soon = np.zeros(0, np.int64)
        for step in steps:
            if not len(soon) and np.isin(step, self._announced).all():
                return
            if len(soon) + len(step) > room:
                break
            soon = np.append(soon, step[self.known[step]])
        self._announced = np.unique(soon)
        if len(soon):
            self._population.start("foresee", self._announced, self._population.updates[self._announced])

    def update(self, state: Ints, element: int) -> Ints:
        return np.append(state, element) if self.known[element] else state


def _file(updates: Floats) -> tuple[str, str, int, tuple[int, int]] | None:
    """The file that all of `updates` are mapped from, if they are."""
    owner = mapping(updates)
    if owner is None:
        return None
    owner.flush()  # for machines that see the file over a network
    return str(owner.filename), owner.dtype.str, int(owner.offset), (int(owner.shape[0]), int(owner.shape[1]))
