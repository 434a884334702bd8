"""Selections in a process of its own, which joins a cluster: `python -m tests.cluster.driver WHAT ADDRESS`.

It says on standard output where it is, a line each, and goes on when it is answered on standard input.
"""

import json
import logging
import os
import sys
from typing import Any

import ray
from ray._private.state import actors

from equifl import DivFL
from equifl.cluster import ClusterSelector, workers
from equifl.cluster.population import Call, Population
from equifl.cluster.session import connect
from equifl.cluster.watch import ClusterLostError
from equifl.testing import random_signals

SIGNALS = random_signals(300, d=8)


def expected() -> list[int]:
    return DivFL(sample=5).select(SIGNALS, 12, rng=0).tolist()


def choose(address: str, **options: Any) -> list[int]:
    return ClusterSelector(DivFL(sample=5), address, shards=3, **options).select(SIGNALS, 12, rng=0).tolist()


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def say_and_wait(what: Any) -> None:
    say(what)
    sys.stdin.readline()


def waiting(address: str) -> None:
    """Where there is no CPU: give up, and then wait for one that comes later."""

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    logging.getLogger("equifl").addHandler(Said())
    workers.SILENT_SECONDS = 0.5
    try:
        choose(address, wait_limit=2)
    except TimeoutError as error:
        say(str(error))
    while any(actor["State"] in ("PENDING_CREATION", "DEPENDENCIES_UNREADY") for actor in actors().values()):
        pass  # what was queued is cancelled
    say("nothing is queued")
    say(choose(address))


def interrupted(address: str) -> None:
    """Two selections, each of which waits for an answer in the middle; say where the workers are."""
    connect(address)
    workers.start_workers(3, 60.0)
    nodes = workers.results([workers.worker(i).call.remote(None, os.getppid, ()) for i in range(3)])
    start, asked = Population.start, iter(range(10**6))

    def pausing(self: Population, method: str, *arguments: Any, **options: Any) -> list[Call]:
        if method == "gains" and next(asked) in (5, 20):
            say_and_wait(nodes)
        return start(self, method, *arguments, **options)

    Population.start = pausing  # type: ignore[method-assign]
    for _ in range(2):
        try:
            say(choose(address))
        except ClusterLostError as error:
            say(str(error))
            say(ray.is_initialized())


if __name__ == "__main__":
    {"waiting": waiting, "interrupted": interrupted}[sys.argv[1]](sys.argv[2])
