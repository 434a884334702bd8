"""One selection on this machine alone, and then on Ray workers of this machine: time, memory, messages."""

from __future__ import annotations

import os
import pickle
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from scale_points import SEED, busy_seconds, others, peak_bytes, prepared

from equifl import Signals
from equifl.cluster import ClusterSelector
from equifl.cluster.population import Population
from equifl.cluster.session import connect
from equifl.cluster.workers import worker
from equifl.signals import Ints

WORKERS = (1, 2, 4)
OBJECT_STORE_BYTES = 2**28  # workers read the file; nothing is put here


def select_on_cluster(point: dict[str, Any], path: Path) -> dict[str, Any]:
    store, selector = prepared(point, path)
    signals, k = store.signals(10), point["k"]
    before, start = (busy_seconds(), our_seconds()), time.perf_counter()
    alone = selector.select(signals, k, rng=np.random.default_rng(SEED))
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, "bytes": peak_bytes()}
    disturbance = others_since(before, found["seconds"])
    os.environ["RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"] = str(OBJECT_STORE_BYTES)
    several = [with_workers(selector, signals, k, alone, workers) for workers in WORKERS]
    return found | {"others": max([disturbance, *(one["others"] for one in several)]), "with workers": several}


def with_workers(selector: Any, signals: Signals, k: int, alone: Ints, workers: int) -> dict[str, Any]:
    """The same, in a Ray of its own: workers that have done nothing yet have taken no memory."""
    connect(None)
    processes = ray.get([worker(i).process.remote() for i in range(workers)])
    with weighed() as messages, planning_timed(messages) as planning:
        before, start = (busy_seconds(), our_seconds()), time.perf_counter()
        chosen = ClusterSelector(selector, shards=workers).select(signals, k, rng=np.random.default_rng(SEED))
        wall = time.perf_counter() - start
        disturbance, seconds = others_since(before, wall), wall - messages["weighing"]
    found: dict[str, Any] = {"workers": workers, "seconds": seconds, **messages, **planning, "a call": call_seconds()}
    found["others"] = disturbance
    found["bytes of a worker"] = max(peak_bytes(process) for process in processes)
    found["same choice"] = chosen.tolist() == alone.tolist()
    if not found["same choice"]:
        function = selector.objective(signals)
        found["share of the value"] = function(chosen) / function(alone)
    ray.shutdown()
    return found


@contextmanager
def weighed() -> Iterator[dict[str, Any]]:
    """What is sent to workers and what comes back, as it is pickled; how often and how long all wait for them."""
    tell, hear = Population.start, Population.wait
    found: dict[str, Any] = dict.fromkeys(("bytes out", "bytes back", "calls", "steps"), 0)
    found |= dict.fromkeys(("telling", "waiting", "weighing"), 0.0)

    def weigh(what: Any) -> int:
        start = time.perf_counter()
        weight = len(pickle.dumps(what))
        found["weighing"] += time.perf_counter() - start
        return weight

    def telling(self: Population, method: str, *arguments: Any, of: Any = None) -> list[Any]:
        for s in range(len(self.parts)) if of is None else of:
            mine = [argument[s] if isinstance(argument, list) else argument for argument in arguments]
            found["bytes out"] += weigh((self.parts[s], *mine))
        start = time.perf_counter()
        calls = tell(self, method, *arguments, of=of)
        found["telling"] += time.perf_counter() - start
        found["calls"] += len(calls)
        return calls

    def hearing(self: Population, calls: list[Any]) -> list[Any]:
        start = time.perf_counter()
        answers = hear(self, calls)
        found["waiting"] += time.perf_counter() - start
        found["steps"] += bool(calls)
        found["bytes back"] += sum(map(weigh, answers))
        return answers

    Population.start, Population.wait = telling, hearing  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Population.start, Population.wait = tell, hear  # type: ignore[method-assign]


@contextmanager
def planning_timed(messages: dict[str, Any]) -> Iterator[dict[str, float]]:
    """How long the driver plans for Rota: what it tells workers and waits for them is among the messages already."""
    each, found = Population.each, {"planning": 0.0}

    def here() -> float:
        return time.perf_counter() - messages["telling"] - messages["waiting"] - messages["weighing"]

    def timed(self: Population, *arguments: Any) -> Iterator[Any]:
        start = here()
        plans = list(each(self, *arguments))
        found["planning"] += here() - start
        return iter(plans)

    Population.each = timed  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        Population.each = each  # type: ignore[method-assign]


def our_seconds() -> float:
    """What processors have done for this process and all that descend from it, which are Ray's."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(file.parent.name)], ticks[int(file.parent.name)] = (
            int(fields[1]),
            int(fields[11]) + int(fields[12]),
        )
    family, new = {os.getpid()}, {os.getpid()}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - family
        family |= new
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def others_since(before: tuple[float, float], wall: float) -> float:
    return others(busy_seconds() - before[0], our_seconds() - before[1], wall)


def call_seconds() -> float:
    """From asking a worker for next to nothing to the answer."""
    times = []
    for _ in range(101):
        start = time.perf_counter()
        ray.get(worker(0).process.remote())
        times.append(time.perf_counter() - start)
    return statistics.median(times)
