"""The identity of nodes: node ids change when nodes restart, a client's id and history must not."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from equifl.signals import Ints

log = logging.getLogger("flwr")

_LONGEST = 128  # characters of an identity: all are stored at the length of the longest


class Roster:
    """Clients 0, 1, ... by an identity that survives restarts, and the nodes they currently run on.

    An identity is the value of the metric `metric`, where one is named; else the node's public key, else its
    name, else its id, which is not stable and causes one warning. A node that needs a client id before its
    metric was reported is identified by its node id until then; if the metric turns out to be that of a known client,
    `recognise` assigns that client's id.

    Nodes met at the same time are numbered in the order of their registration: in a simulation that is the order of
    the partitions, whatever their random node ids are.
    """

    def __init__(
        self, metric: str | None = None, identities: Iterable[str] = (), nodes: Mapping[int, int] | None = None
    ) -> None:
        self.metric = metric
        self.identities = list(identities)  # by client; "" = an id that is free again
        self._clients = {identity: client for client, identity in enumerate(self.identities) if identity}
        self._free = [client for client, identity in enumerate(self.identities) if not identity]
        # Every node ever seen, in that order; the same node id is the same client. None = no client id yet.
        self._nodes: dict[int, int | None] = dict(nodes or {})
        self._node_of: dict[int, int] = {client: node for node, client in (nodes or {}).items()}
        self._online: set[int] = set()
        self._warned: set[str] = set()

    def __len__(self) -> int:
        return len(self.identities)

    @property
    def nodes(self) -> dict[int, int]:
        """The client of every node that has one."""
        return {node: client for node, client in self._nodes.items() if client is not None}

    def online(self, node_ids: Iterable[int]) -> None:
        """Set which nodes are online now."""
        self._online = set(node_ids)

    def unmet(self) -> set[int]:
        """The online nodes that `meet` has not seen."""
        return self._online - self._nodes.keys()

    def meet(self, nodes: Iterable[Any]) -> None:
        """Register new nodes (Flower's NodeInfo)."""
        new = [node for node in nodes if node.node_id not in self._nodes]
        for node in sorted(new, key=_registered):
            identity = None if self.metric else _identity(node)
            self._nodes[node.node_id] = None
            if identity is not None:
                self._assign(node.node_id, self._number(identity))
            elif not self.metric:
                self._once(
                    "nodes have neither key nor name: a node that restarts becomes a new client. Start SuperNodes "
                    "with --auth-supernode-private-key, or pass identity='partition-id' to FairSelection and report "
                    "that metric."
                )

    def in_order(self, node_ids: Iterable[int]) -> list[int]:
        """The registered ones among these nodes, in the order of registration."""
        wanted = set(node_ids)
        return [node for node in self._nodes if node in wanted]

    def clients(self, node_ids: Iterable[int]) -> Ints:
        """The client ids of these nodes, in their order; a node without one gets one."""
        nodes = list(node_ids)
        for node in nodes:
            if self._nodes[node] is None:
                self._assign(node, self._number(f"node:{node}"))
        return np.array([self._nodes[node] for node in nodes], np.int64)

    def recognise(self, node_id: int, record: Mapping[str, Any]) -> int | None:
        """Read a node's identity from its metrics or configuration; returns the client id that this frees, if any."""
        value = self.value(record)
        if value is None or self.knows(node_id):
            return None
        identity = f"{self.metric}:{value}"
        client, temporary = self._clients.get(identity), self._nodes[node_id]
        if client is not None and self._node_of.get(client) in self._online:
            self._once(f"node {node_id} says it is {identity}, which another node is: it is treated as a new client")
            return None
        if client is None and temporary is not None:  # a new identity: it keeps its temporary id
            del self._clients[self.identities[temporary]]
            self.identities[temporary] = identity
            self._clients[identity] = temporary
            return None
        self._assign(node_id, self._number(identity))
        if temporary is not None:
            del self._clients[self.identities[temporary]], self._node_of[temporary]
            self.identities[temporary] = ""
            self._free.append(temporary)
        return temporary

    def value(self, record: Mapping[str, Any]) -> str | None:
        """The identity in a record, as text; whole numbers are written without a fraction. None for one too long."""
        value = record.get(self.metric) if self.metric else None
        if isinstance(value, float):
            value = (int(value) if value.is_integer() else repr(value)) if np.isfinite(value) else None
        text = str(value) if isinstance(value, int | str | bytes) else ""
        return text if 0 < len(text) <= _LONGEST and text.isprintable() else None

    def knows(self, node_id: int) -> bool:
        """Whether the node has an identity that survives a restart."""
        client = self._nodes.get(node_id)
        return client is not None and not self.identities[client].startswith("node:")

    def named(self, node_id: int) -> str:
        """The node for log messages, with its identity if that is more than the node id."""
        client = self._nodes.get(node_id)
        known = client is not None and self.knows(node_id)
        return f"node {node_id} ({self.identities[client]})" if client is not None and known else f"node {node_id}"

    def _assign(self, node_id: int, client: int) -> None:
        self._nodes[node_id] = client
        self._node_of[client] = node_id

    def _number(self, identity: str) -> int:
        if identity not in self._clients:
            if self._free:
                client = self._free.pop(0)
                self.identities[client] = identity
            else:
                client = len(self.identities)
                self.identities.append(identity)
            self._clients[identity] = client
        return self._clients[identity]

    def _once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("equifl: %s", message)


def _identity(node: Any) -> str | None:
    """By key or name; None if the node has neither. Flower's simulation has random bytes where the key would be."""
    key = bytes(getattr(node, "public_key", b""))
    if key.startswith((b"-----BEGIN", b"ssh-", b"ecdsa-")):
        return f"key:{hashlib.sha256(key).hexdigest()[:32]}"
    name = getattr(node, "name", "")
    return f"name:{name}" if name else None


def _registered(node: Any) -> tuple[datetime, int]:
    text = getattr(node, "registered_at", "")
    return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC), node.node_id
