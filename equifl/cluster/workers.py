"""Workers on a cluster: waiting for free CPUs and for results, and who takes over when one dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray import exceptions

from equifl._numerics.checks import brief, require
from equifl.cluster.session import connection, resource, taken
from equifl.cluster.shard import Shard

log = logging.getLogger("equifl")

WAIT_LIMIT = 300.0  # seconds to wait for free CPUs or GPUs
DEATHS = 5  # of one worker after another, without a result, before the work is considered the cause
SILENT_SECONDS = 5.0  # of waiting for free CPUs without a word
_LAP = 1.0  # seconds between two looks at the cluster

_DEATHS = (
    exceptions.RayActorError,
    exceptions.ObjectLostError,  # a result on a node that died before it was fetched
    exceptions.NodeDiedError,
    exceptions.WorkerCrashedError,
    exceptions.OutOfMemoryError,
    exceptions.RpcError,
)


class WorkerDiedError(Exception):
    """A worker died before it had the result; another can compute it."""


def check_wait_limit(value: object) -> None:
    """Raise ValueError unless it is a number of seconds.

    >>> check_wait_limit(-1)
    Traceback (most recent call last):
    ValueError: wait_limit: -1 is not allowed; allowed: seconds, 0 or more
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require("wait_limit", value, number and value >= 0, "seconds, 0 or more")  # type: ignore[operator]


def results(calls: Sequence[Any]) -> list[Any]:
    """The results of calls, however long they take.

    What is wrong with the work is raised as without Ray. Raises `WorkerDiedError` if a worker has died, and
    `ClusterLostError` if the cluster is gone.
    """
    waiting = list(calls)
    while waiting:
        waiting = _unfinished(waiting, _LAP)
    connection()  # Ray ends this process if it looks for results on a node that is gone
    try:
        return ray.get(list(calls))
    except exceptions.LocalRayletDiedError as error:
        raise connection().lost(f"the node of this process is gone ({_short(error)})") from None
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, _DEATHS):
            raise _died(error.cause) from None
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except _DEATHS as error:
        raise _died(error) from None


def started(ready: Sequence[Any], kind: str, limit: float, *, least: int = 0) -> bool:
    """Wait until all workers have started, each of which needs a free CPU or GPU (`kind`) for that.

    `ready` are calls of their `__ray_ready__`. After a few seconds a warning says what is waited for. False if the
    cluster has less than `least` CPUs, so that waiting is in vain. Raises `TimeoutError` after `limit` seconds.
    Whoever made the workers should end them then.
    """
    begun, waiting, said = time.monotonic(), list(ready), False
    while True:
        waited = time.monotonic() - begun
        waiting = _unfinished(waiting, min(_LAP, max(0.0, limit - waited)))
        if not waiting:
            return True
        if resource(kind) < least:
            return False
        missing = f"{len(waiting)} of {len(ready)} workers cannot start: each needs a free {kind}, and"
        if waited >= limit:
            raise TimeoutError(
                f"ray: {missing} {taken(kind)}, after waiting for {limit:g} s; free some, add nodes, or allow more "
                "time (wait_limit, on the command line --ray-wait)"
            )
        if waited >= SILENT_SECONDS and not said:
            log.warning("ray: %s %s; waiting for up to %g s", missing, taken(kind), limit)
            said = True


def _unfinished(calls: list[Any], seconds: float) -> list[Any]:
    """Those that have not finished after so many seconds."""
    connection()
    try:
        return ray.wait(calls, num_returns=len(calls), timeout=seconds)[1]
    except OSError as error:  # from the node of this process
        raise connection().lost(f"the node of this process is gone ({_short(error)})") from None


def _died(error: BaseException) -> WorkerDiedError:
    connection()  # it may have died with the whole cluster
    return WorkerDiedError(_short(error))


def _short(error: BaseException) -> str:
    """The last line, which says why; Ray's errors have many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return brief(lines[-1] if lines else type(error).__name__)


_shard_workers: dict[tuple[str, int], tuple[Any, Any]] = {}  # by connection: the worker, and whether it has started


def worker(index: int) -> Any:
    """Worker `index` of this process: the same one at every call, since starting one takes longer than a selection."""
    return _shard_worker(index)[0]


def start_workers(count: int, limit: float) -> None:
    """Wait for workers 0 to `count` - 1; those that find no CPU within `limit` seconds are ended."""
    every = [_shard_worker(index) for index in range(count)]
    try:
        started([ready for _, ready in every], "CPU", limit)
    except TimeoutError:
        for index in range(count):
            if _unfinished([every[index][1]], 0.0):
                end_worker(index)
        raise


def end_worker(index: int) -> None:
    """End worker `index`, dead or alive; the next call of `worker` starts another."""
    found = _shard_workers.pop((connection().key, index), None)
    if found is not None:
        ray.kill(found[0])


def _shard_worker(index: int) -> tuple[Any, Any]:
    key = (connection().key, index)
    if key not in _shard_workers:
        made: Any = ray.remote(Shard).options(scheduling_strategy="SPREAD").remote(ray.get)
        _shard_workers[key] = made, made.__ray_ready__.remote()
    return _shard_workers[key]
