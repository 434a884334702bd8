"""Ray: joining a cluster or starting one on this machine, and what this process may do with it."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import ray

from equifl.cluster.watch import ClusterLostError, Connection, within

_HEAD_SECONDS = 10.0  # for the head of a cluster to answer

_connections: list[Connection] = []  # the present one, if any


def connect(address: str | None) -> None:
    """Join the cluster at `address`, or start one on this machine; if this process is in one already, stay in it.

    What is started here listens on the loopback interface alone. Raises `ConnectionError` if nobody answers there.
    """
    if ray.is_initialized():
        connection()
        return
    if address:
        require_head(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics from a cluster that we start
    options: dict[str, Any] = {} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        if not address:
            stack.enter_context(_loopback())
            stack.enter_context(_ending_soon())
        warnings.simplefilter("ignore")  # Ray's, about its own next versions
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.WARNING, **options)
    connection(own=not address)


def require_head(address: str) -> None:
    """Raise `ConnectionError` if nobody listens at host:port; Ray would try for three minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        return
    local = host in ("127.0.0.1", "::1", "localhost")
    for name in (host, _this_machine()) if local else (host,):
        with suppress(OSError), socket.create_connection((name.strip("[]"), int(port)), timeout=_HEAD_SECONDS):
            return
    raise ConnectionError(f"ray: no head of a cluster answers at {address}; start it, or leave the address out")


def _this_machine() -> str:
    """The address that Ray reads for localhost."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def connection(*, own: bool = False) -> Connection:
    """This process's connection, checked: raises `ClusterLostError` if the cluster is gone."""
    if not ray.is_initialized():  # any call would start a cluster
        raise ClusterLostError("ray: this process is in no cluster any more; repeat the call")
    here = ray.get_runtime_context()
    key = here.get_node_id() + here.get_job_id()
    if not _connections or _connections[0].key != key:
        _connections[:] = [Connection(key, own=own)]
    _connections[0].check()
    return _connections[0]


@contextmanager
def _ending_soon() -> Iterator[None]:
    """Make parts of a cluster that we start wait for its head, which never comes back, for 10 s, and not for 60.

    If this process is killed, the kernel ends the head and the node with it, but not the node's own helpers.
    """
    name = "RAY_gcs_rpc_server_reconnect_timeout_s"
    before = os.environ.get(name)
    os.environ[name] = "10" if before is None else before
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


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


def stored(value: Any) -> list[Any]:
    """The value's reference in the cluster's object store; in a list, so that Ray does not fetch it by itself."""
    connection()
    return [ray.put(value)]


def resource(kind: str) -> int:
    """The number of CPUs ("CPU") or GPUs ("GPU") in the cluster."""
    connection()
    return int(within(ray.cluster_resources).get(kind, 0))


def taken(kind: str) -> str:
    """How many of them are taken, in words.

    >>> taken("CPU")  # doctest: +SKIP
    '1 of 2 CPUs are taken'
    """
    connection()
    every, free = (within(ask).get(kind, 0) for ask in (ray.cluster_resources, ray.available_resources))
    return f"{every - free:g} of {every:g} {kind}s are taken"
