"""Whether the cluster is still there: its head, and the node of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import ray

HEAD_SECONDS = 30.0  # without the head before we give up: it may come back, and after 60 Ray ends this process
OWN_HEAD_SECONDS = 3.0  # the same of a cluster that we started: nobody starts its head again
_ANSWER_SECONDS = 10.0  # for an answer of the head, and for leaving a cluster that is gone
_KEEP_ALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))  # a machine that lost its power

Answer = TypeVar("Answer")


class ClusterLostError(OSError):
    """The head of the cluster, or the node of this process, is gone; this process has left the cluster."""


class Peer:
    """A server of the cluster, seen over an idle connection, which ends when the server's process does.

    To look at it costs a microsecond, so that it can be looked at before every call.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._where = (host, port)
        self._socket: socket.socket | None = None
        self._missed, self._tried = 0.0, 0.0
        self._watched = self._reached()  # one that cannot be reached from here tells nothing

    def missing(self) -> float:
        """The seconds since it was last there, or 0.0; it is looked for again at most once a second."""
        if not self._watched or self._connected():
            return 0.0
        now = time.monotonic()
        self._missed = self._missed or now
        if now - self._tried >= 1.0 and self._reached():
            self._missed = 0.0
            return 0.0
        return max(now - self._missed, 1e-3)

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> bool:
        if self._socket is None:
            return False
        try:
            while self._socket.recv(4096):  # what a server says to everybody who connects
                pass
        except BlockingIOError:
            return True
        except OSError:
            pass
        self.close()  # servers end idle connections, too, hence a second look
        return False

    def _reached(self) -> bool:
        self._tried = time.monotonic()
        try:
            self._socket = socket.create_connection(self._where, timeout=1.0)
        except OSError:
            return False
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):  # not on every system
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return True


class Connection:
    """This process in a cluster.

    Attributes:
        key: node and job of this process.
        own: whether it is a cluster that this process started.
    """

    def __init__(self, key: str, *, own: bool) -> None:
        self.key, self.own = key, own
        here = ray.get_runtime_context()
        self._head = _peer(str(here.gcs_address))
        nodes: list[dict[str, Any]] = within(ray.nodes)
        mine = [node for node in nodes if node["NodeID"] == here.get_node_id()]
        self._node = Peer(mine[0]["NodeManagerAddress"], mine[0]["NodeManagerPort"]) if mine else None

    def check(self) -> None:
        """Leave the cluster and raise, if its head or the node of this process is gone."""
        if self._node is not None and self._node.missing():
            raise self.lost(f"the node of this process ({self._node.address}) is gone")
        patience = OWN_HEAD_SECONDS if self.own else HEAD_SECONDS
        if self._head is not None and self._head.missing() > patience:
            raise self.lost(f"the head of the cluster ({self._head.address}) is gone for {patience:g} s")

    def lost(self, what: str) -> ClusterLostError:
        """The error to raise; this process has left the cluster then, and can join another."""
        for peer in (self._head, self._node):
            if peer is not None:
                peer.close()
        leave()
        return ClusterLostError(f"ray: {what}; start the cluster again, or do without it, and repeat the call")


def leave() -> None:
    """End the connection, if it can be ended; else Ray's threads are left behind."""
    if ray.is_initialized():
        with suppress(ClusterLostError):
            within(ray.shutdown)


def within(function: Callable[[], Answer]) -> Answer:
    """The result of a call that Ray makes to the head, and that would wait for it if it is gone."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if errors:
        raise errors[0]
    if not answers:
        raise ClusterLostError(f"ray: the head of the cluster did not answer for {_ANSWER_SECONDS:g} s")
    return answers[0]


def _peer(address: str) -> Peer | None:
    host, _, port = address.rpartition(":")
    return Peer(host.strip("[]"), int(port)) if host and port.isdigit() else None
