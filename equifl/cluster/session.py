"""Ray: joining a cluster or starting one on this machine, and the workers that hold shards."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from functools import cache
from typing import Any

import ray

from equifl.cluster.shard import Shard


def connect(address: str | None) -> None:
    """Join the cluster at `address`, or start one on this machine; if this process is in one already, stay in it."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of a cluster that we start
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    if not address and sys.platform == "linux":
        # Loopback: others have no business here. Ray takes 127.0.0.1 for a mistake and listens to the network instead.
        options["_node_ip_address"] = "127.0.0.2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's, about its own next versions
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.WARNING, **options)


def resource(kind: str) -> int:
    """How many of a kind ("CPU", "GPU") the cluster has."""
    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def worker(index: int) -> Any:
    """Worker `index` of this process: the same one at every call, since starting one takes longer than a selection."""
    here = ray.get_runtime_context()
    return _worker(here.get_node_id() + here.get_job_id(), index)  # jobs are numbered anew in every cluster


@cache
def _worker(connection: str, index: int) -> Any:
    """Ray starts a worker that died again, and gives it the calls that it has not answered."""
    forever: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    return ray.remote(Shard).options(**forever).remote(ray.get)
