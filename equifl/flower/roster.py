"""Which client a node is. Nodes come and go, and their ids with them; a client's history must not."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from equifl.signals import Ints

log = logging.getLogger("flwr")


class Roster:
    """Clients 0, 1, ... by an identity that survives restarts, and the nodes behind which they are now.

    An identity is the value of the metric `metric`, where one is named; else the node's public key, else its
    name, else its id, which is not stable and brings one warning. Who is to be known by a metric, but must be given a
    number before it was heard, is known by its node's id until then; should the metric say that it is somebody
    known, `recognise` gives it its own number back.

    Nodes met at the same time are numbered in the order of their registration: in a simulation that is the order of
    the partitions, whatever ids chance gave them.
    """

    def __init__(
        self, metric: str | None = None, identities: Iterable[str] = (), nodes: Mapping[int, int] | None = None
    ) -> None:
        self.metric = metric
        self.identities = list(identities)  # by client; "" = a number that is free again
        self._clients = {identity: client for client, identity in enumerate(self.identities) if identity}
        self._free = [client for client, identity in enumerate(self.identities) if not identity]
        # Every node ever met, in that order: who comes back under the same id is the same. None = no number yet.
        self._nodes: dict[int, int | None] = dict(nodes or {})
        self._node_of: dict[int, int] = {client: node for node, client in (nodes or {}).items()}
        self._online: set[int] = set()
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self.identities)

    @property
    def nodes(self) -> dict[int, int]:
        """The client of every node that has one."""
        return {node: client for node, client in self._nodes.items() if client is not None}

    def online(self, node_ids: Iterable[int]) -> None:
        """These nodes are there now, and no others."""
        self._online = set(node_ids)

    def unmet(self) -> set[int]:
        """Those online that `meet` has not seen."""
        return self._online - self._nodes.keys()

    def meet(self, nodes: Iterable[Any]) -> None:
        """Take note of new nodes (Flower's NodeInfo)."""
        new = [node for node in nodes if node.node_id not in self._nodes]
        for node in sorted(new, key=_registered):
            identity = None if self.metric else _identity(node)
            self._nodes[node.node_id] = None
            if identity is not None:
                self._seat(node.node_id, self._number(identity))
            elif not self.metric:
                self._once(
                    "nodes have neither key nor name: a node that restarts is a stranger. Start SuperNodes with "
                    "--auth-supernode-private-key, or pass identity='partition-id' to FairSelection and report that "
                    "metric."
                )

    def in_order(self, node_ids: Iterable[int]) -> list[int]:
        """Those of these nodes that were met, in the order of meeting."""
        wanted = set(node_ids)
        return [node for node in self._nodes if node in wanted]

    def clients(self, node_ids: Iterable[int]) -> Ints:
        """The clients behind these nodes, in their order; who has no number yet gets one."""
        nodes = list(node_ids)
        for node in nodes:
            if self._nodes[node] is None:
                self._seat(node, self._number(f"node:{node}"))
        return np.array([self._nodes[node] for node in nodes], np.int64)

    def recognise(self, node_id: int, record: Mapping[str, Any]) -> int | None:
        """Learn from a reply's metrics, or configuration, who a node is; the number that this sets free, if any."""
        value = self.value(record)
        if value is None or self.knows(node_id):
            return None
        identity = f"{self.metric}:{value}"
        client, lent = self._clients.get(identity), self._nodes[node_id]
        if client is not None and self._node_of.get(client) in self._online:
            self._once(f"node {node_id} says it is {identity}, which another node is: taken for a new one")
            return None
        if client is None and lent is not None:  # nobody known: the number lent is its own now
            del self._clients[self.identities[lent]]
            self.identities[lent] = identity
            self._clients[identity] = lent
            return None
        self._seat(node_id, self._number(identity))
        if lent is not None:
            del self._clients[self.identities[lent]], self._node_of[lent]
            self.identities[lent] = ""
            self._free.append(lent)
        return lent

    def value(self, record: Mapping[str, Any]) -> str | None:
        """What a record says of the identity; numbers that are whole are written as such."""
        value = record.get(self.metric) if self.metric else None
        if isinstance(value, float):
            return (str(int(value)) if value.is_integer() else repr(value)) if np.isfinite(value) else None
        return str(value) if isinstance(value, int | str | bytes) and value != "" else None

    def knows(self, node_id: int) -> bool:
        """Whether the node is known by something that survives its restart."""
        client = self._nodes.get(node_id)
        return client is not None and not self.identities[client].startswith("node:")

    def named(self, node_id: int) -> str:
        """For the log: the node, and who it is if that is known by more than its id."""
        client = self._nodes.get(node_id)
        known = client is not None and self.knows(node_id)
        return f"node {node_id} ({self.identities[client]})" if client is not None and known else f"node {node_id}"

    def _seat(self, node_id: int, client: int) -> None:
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
        if message not in self._told:
            self._told.add(message)
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
