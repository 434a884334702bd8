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

    def __init__(self, metric: str | None = None, identities: Iterable[str] = ()) -> None:
        self.metric = metric
        self.identities = list(identities)  # by client; "" = a number that is free again
        self._clients = {identity: client for client, identity in enumerate(self.identities) if identity}
        self._nodes: dict[int, int | None] = {}  # node id -> client, None = no number yet; in the order of meeting
        self._warned = False

    def __len__(self) -> int:
        return len(self.identities)

    def unmet(self, node_ids: Iterable[int]) -> set[int]:
        """Those of the nodes that `meet` has not seen."""
        return set(node_ids) - self._nodes.keys()

    def meet(self, nodes: Iterable[Any]) -> None:
        """Take note of new nodes (Flower's NodeInfo)."""
        new = [node for node in nodes if node.node_id not in self._nodes]
        for node in sorted(new, key=_registered):
            identity = None if self.metric else _identity(node)
            self._nodes[node.node_id] = None if identity is None else self._number(identity)
            if identity is None and not self.metric and not self._warned:
                self._warned = True
                log.warning(
                    "equifl: nodes have neither key nor name: a node that restarts is a stranger. "
                    "Start SuperNodes with --auth-supernode-private-key, or pass identity='partition-id' to "
                    "FairSelection and report that metric."
                )

    def in_order(self, node_ids: Iterable[int]) -> list[int]:
        """Those of these nodes that were met, in the order of meeting."""
        wanted = set(node_ids)
        return [node for node in self._nodes if node in wanted]

    def clients(self, node_ids: Iterable[int]) -> Ints:
        """The clients behind these nodes, in their order; who has no number yet gets one."""
        numbers = []
        for node in node_ids:
            client = self._nodes[node]
            if client is None:
                client = self._nodes[node] = self._number(f"node:{node}")
            numbers.append(client)
        return np.array(numbers, np.int64)

    def recognise(self, node_id: int, record: Mapping[str, Any]) -> int | None:
        """Learn from a reply's metrics, or configuration, who a node is; the number that this sets free, if any."""
        value = record.get(self.metric) if self.metric else None
        if value is None or self.knows(node_id):
            return None
        identity = f"{self.metric}:{value:g}" if isinstance(value, float) else f"{self.metric}:{value}"
        client, lent = self._clients.get(identity), self._nodes[node_id]
        if client is not None and client in self._nodes.values():
            log.warning("equifl: node %d says it is %s, which another node is: taken for a new one", node_id, identity)
            return None
        if client is None and lent is not None:  # nobody known: the number lent is its own now
            del self._clients[self.identities[lent]]
            self.identities[lent] = identity
            self._clients[identity] = lent
            return None
        self._nodes[node_id] = self._number(identity)
        if lent is not None:
            del self._clients[self.identities[lent]]
            self.identities[lent] = ""
        return lent

    def knows(self, node_id: int) -> bool:
        """Whether the node is known by something that survives its restart."""
        client = self._nodes[node_id]
        return client is not None and not self.identities[client].startswith("node:")

    def named(self, node_id: int) -> str:
        """For the log: the node, and who it is if that is known by more than its id."""
        client = self._nodes.get(node_id)
        known = client is not None and self.knows(node_id)
        return f"node {node_id} ({self.identities[client]})" if client is not None and known else f"node {node_id}"

    def keep(self, node_ids: Iterable[int]) -> None:
        """Forget all nodes but these: who returns under a new id is met again, and can be recognised."""
        online = set(node_ids)
        self._nodes = {node_id: client for node_id, client in self._nodes.items() if node_id in online}

    def _number(self, identity: str) -> int:
        if identity not in self._clients:
            free = self.identities.index("") if "" in self.identities else len(self.identities)
            self.identities[free : free + 1] = [identity]
            self._clients[identity] = free
        return self._clients[identity]


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
