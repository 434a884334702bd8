"""Ray: joining a cluster or starting one on this machine, and the workers that hold shards."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import ray

from equifl.cluster.shard import Shard


def connect(address: str | None) -> None:
    """Join the cluster at `address`, or start one on this machine; if this process is in one already, stay in it.

    What is started here listens on the loopback interface alone.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics from a cluster that we start
    options: dict[str, Any] = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    with warnings.catch_warnings(), nullcontext() if address else _loopback():
        warnings.simplefilter("ignore")  # Ray's, about its own next versions
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.WARNING, **options)


@contextmanager
def _loopback() -> Iterator[None]:
    """Make Ray accept 127.0.0.1, which it would replace by a public address, opening its ports to the network.

    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 does the same, but is read when Ray is imported, and forbids other clusters.
    """
    try:
        from ray._private import ray_constants

        before = ray_constants.ENABLE_RAY_CLUSTER
    except (ImportError, AttributeError):  # better no cluster than one with open ports
        raise RuntimeError(
            f"Ray {ray.__version__} cannot be restricted to 127.0.0.1; start a cluster yourself and give its address"
        ) from None
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def resource(kind: str) -> int:
    """The number of CPUs ("CPU") or GPUs ("GPU") in the cluster."""
    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def worker(index: int) -> Any:
    """Worker `index` of this process: the same one at every call, since starting one takes longer than a selection."""
    here = ray.get_runtime_context()
    return _worker(here.get_node_id() + here.get_job_id(), index)  # job ids repeat between clusters


@cache
def _worker(connection: str, index: int) -> Any:
    """A worker that Ray restarts if it dies, with its unanswered calls repeated."""
    forever: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    return ray.remote(Shard).options(**forever).remote(ray.get)
