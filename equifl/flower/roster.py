"""The identity of nodes: node ids change when nodes restart, a client's id and history must not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.flower.node_keys import key_of, name_of, order_of_registration, was_registered_for
from equifl.hosts.journal import require_list
from equifl.signals import Ints

log = logging.getLogger("flwr")

_LONGEST = 128  # characters of an identity: all are stored at the length of the longest
_PROVEN = ("key:", "name:")
_KEYS = "Start SuperNodes with --auth-supernode-private-key, and keys that were registered for them"


class Roster:
    """Clients 0, 1, ... by an identity that survives restarts, and the nodes they currently run on.

    An identity is the public key of a node that was registered for it, which the SuperLink checks, or its registered
    name; what the node reports as the metric `metric` then only names the client. A node that has neither is known by
    the metric. Without one, by its id, or by a key that it made as it started: neither is stable, with a warning.

    A node that reports the identity of a client whose node is away is that client, restarted. If that node is there,
    the new one waits, as a client of its own, until it is clear which it is: the other left without another reply, so
    this is its restart; or it replied, so this is a second node of that name, and a second client. And who returns
    finds its own client, whoever took its identity meanwhile.

    Nodes met at the same time are numbered in the order of their registration: in a simulation that is the order of
    the partitions, whatever their random node ids are.
    """

    def __init__(self, metric: str | None = None) -> None:
        self.metric = metric
        ours = metric is not None and metric.partition(":")[0] in ("key", "name", "node")
        self._prefix = f"metric {metric}:" if ours else f"{metric}:"
        self.identities: list[str] = []  # by client; "" = an id that is free again
        self._clients: dict[str, int] = {}
        self._free: list[int] = []
        self._names: dict[int, tuple[str, str]] = {}  # of proven clients: as registered, and as reported
        self._namesakes: dict[str, set[int]] = {}  # proven clients by what they report
        # Every node ever seen, in that order; the same node id is the same client. None = no client id yet.
        self._nodes: dict[int, int | None] = {}
        self._node_of: dict[int, int] = {}  # the node of each client, or its last one
        self._waiting: dict[int, int] = {}  # nodes, and the clients whose identities they report and which are there
        self._claims: dict[int, tuple[str, int]] = {}  # what nodes report, and as which of several of that name
        self._online: set[int] = set()
        self._admits_any = False  # whether a node was seen that made its own key
        self._warned: set[str] = set()
        self._news: set[int] = set()  # clients whose names have changed
        self._moved: set[int] = set()  # clients whose node is another one now

    def __len__(self) -> int:
        return len(self.identities)

    def online(self, node_ids: Iterable[int]) -> None:
        """Set which nodes are online now."""
        before, self._online = self._online, set(node_ids)
        if new := self._online - before:
            for node in self.in_order(new):
                self._return(node)

    def unmet(self) -> set[int]:
        """The online nodes that `meet` has not seen."""
        return self._online - self._nodes.keys()

    def meet(self, nodes: Iterable[Any]) -> None:
        """Register new nodes (Flower's NodeInfo)."""
        new = [node for node in nodes if node.node_id not in self._nodes]
        registered = {node.node_id: was_registered_for(node) for node in new}
        # Where one key was made at a start, the SuperLink admits such nodes: so may those be whose connection broke.
        self._admits_any |= any(registered[node.node_id] is False and key_of(node) for node in new)
        for node in sorted(new, key=order_of_registration):
            self._nodes[node.node_id] = None
            key, name, proven = key_of(node), name_of(node), registered[node.node_id]
            proven = not self._admits_any if proven is None else proven
            if not proven:
                self._warn_of_restarts(key)
            if proven or (key and not self.metric):
                client = self._number(f"key:{key}" if key else f"name:{name}")
                self._assign(node.node_id, client)
                self._name(client, registered=name)

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

    def recognise(self, node_id: int, record: Mapping[str, Any]) -> list[int]:
        """Read a node's identity from its metrics or configuration; returns the client ids that this frees."""
        value, client = self.value(record), self._nodes[node_id]
        if value is None:
            return []
        name = self._prefix + value
        if client is not None and self.identities[client].startswith(_PROVEN):
            self._name(client, reported=name)
            return []
        if self.knows(node_id):
            return []
        before, number = self._claims.get(node_id, (name, 1))
        return self._claim(node_id, name, number if before == name else 1)

    def replied(self, node_id: int) -> list[int]:
        """A node is alive: others that report its identity are other clients. Returns the ids that this frees."""
        freed = []
        for other in [other for other, held in self._waiting.items() if held == self._nodes.get(node_id)]:
            name, number = self._claims[other]
            freed += self._claim(other, name, number + 1)
        return freed

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
        """The node for log messages, with its client's name if that is more than the node id."""
        client = self._nodes.get(node_id)
        known = client is not None and self.knows(node_id)
        return f"node {node_id} ({self.name(client)})" if client is not None and known else f"node {node_id}"

    def name(self, client: int) -> str:
        """A client's name for people: as registered, as reported, its key; empty for an id that is free."""
        identity = self.identities[client]
        names = [name for name in self._names.get(client, ()) if name]
        if identity.startswith("name:"):
            return ", ".join(dict.fromkeys([identity.removeprefix("name:"), *names]))
        if identity.startswith("key:"):
            return ", ".join([*names, identity[: len("key:") + 8]])
        return identity

    def news(self) -> dict[int, str]:
        """The names of clients that have changed since they were last asked for."""
        found = {client: self.name(client) for client in sorted(self._news)}
        self._news.clear()
        return found

    def moved(self) -> list[int]:
        """The clients whose node is another one since they were last asked for: what that one did is not theirs."""
        found = sorted(self._moved)
        self._moved.clear()
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as plain arrays."""
        nodes = {node: client for node, client in self._nodes.items() if client is not None}
        names = [self._names.get(client, ("", "")) for client in range(len(self))]
        return {
            "identities": np.array(self.identities, np.str_),
            "registered_names": np.array([registered for registered, _ in names], np.str_),
            "reported_names": np.array([reported for _, reported in names], np.str_),
            "nodes": np.array(list(nodes), np.uint64),
            "clients_of_nodes": np.array(list(nodes.values()), np.int64),
            "nodes_of_clients": np.array([self._node_of.get(client, 0) for client in range(len(self))], np.uint64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; ValueError if that cannot be."""
        kinds = {"identities": "U", "registered_names": "U", "reported_names": "U"}
        kinds |= {"nodes": "u", "clients_of_nodes": "i", "nodes_of_clients": "u"}
        for name, kind in kinds.items():
            require_list(state, name, kind)
        clients, known = state["clients_of_nodes"], len(state["identities"])
        if len(clients) != len(state["nodes"]) or ((clients < 0) | (clients >= known)).any():
            raise ValueError(f"checkpoint: `clients_of_nodes` is not one of {known} clients for each node")
        for name in ("registered_names", "reported_names", "nodes_of_clients"):
            if len(state[name]) != known:
                raise ValueError(f"checkpoint: `{name}` is no list of {known}")
        self.identities = state["identities"].tolist()
        self._clients = {identity: client for client, identity in enumerate(self.identities) if identity}
        self._free = [client for client, identity in enumerate(self.identities) if not identity]
        names = zip(state["registered_names"].tolist(), state["reported_names"].tolist(), strict=True)
        self._names = {client: pair for client, pair in enumerate(names) if any(pair)}
        for client, (_, reported) in self._names.items():
            self._namesakes.setdefault(reported, set()).add(client)
        self._nodes = dict(zip(state["nodes"].tolist(), clients.tolist(), strict=True))
        self._node_of = {client: node for client, node in enumerate(state["nodes_of_clients"].tolist()) if node}

    def _claim(self, node: int, name: str, number: int) -> list[int]:
        """Make a node the client of this name, the `number`-th of several, unless a node that is there is that client.

        Returns the client ids that this frees.
        """
        self._claims[node] = name, number
        identity = name if number == 1 else f"{name} ({number})"
        client, temporary = self._clients.get(identity), self._nodes[node]
        holder = None if client is None else self._node_of.get(client)
        if number > 1 or (holder is not None and holder in self._online):
            self._once(f"node {node} says it is {name}, which another node is: it is treated as a client of its own")
        if client is not None and holder in self._online:
            self._waiting[node] = client
            return []
        self._waiting.pop(node, None)
        self._warn_of_namesakes(name, claimed=True)
        if client is None and temporary is not None:  # a new identity: it keeps its temporary id
            del self._clients[self.identities[temporary]]
            self.identities[temporary] = identity
            self._clients[identity] = temporary
            self._news.add(temporary)
            return []
        self._assign(node, self._number(identity))
        if temporary is None:
            return []
        del self._clients[self.identities[temporary]], self._node_of[temporary]
        self.identities[temporary] = ""
        self._free.append(temporary)
        self._news.add(temporary)
        return [temporary]

    def _return(self, node: int) -> None:
        """A node is online again: its client is its own, also if it was taken for another node's meanwhile."""
        client = self._nodes.get(node)
        taker = None if client is None else self._node_of.get(client)
        if client is None or taker is None or taker == node:
            return
        self._assign(node, client)
        self._nodes[taker] = None
        name, number = self._claims.get(taker, (self.identities[client], 1))
        self._claim(taker, name, number + 1)

    def _name(self, client: int, *, registered: str = "", reported: str = "") -> None:
        """Note what a client is called whose identity is proven."""
        before = self._names.get(client, ("", ""))
        after = registered or before[0], reported or before[1]
        if after == before:
            return
        self._names[client] = after
        self._news.add(client)
        if reported:
            self._namesakes.get(before[1], set()).discard(client)
            self._namesakes.setdefault(reported, set()).add(client)
            self._warn_of_namesakes(reported, claimed=reported in self._clients)

    def _warn_of_namesakes(self, name: str, *, claimed: bool) -> None:
        proven = self._namesakes.get(name, ())
        if len(proven) + claimed > 1:
            keys = "; ".join(self.name(client) for client in sorted(proven))
            self._once(f"several nodes say they are {name} ({keys}): each is a client of its own")

    def _warn_of_restarts(self, key: str) -> None:
        """Say once what becomes of nodes without a lasting key."""
        if not self.metric:
            why = "keys that their SuperNodes made as they started" if key else "neither key nor name"
            advice = "or pass identity='partition-id' to FairSelection and report that metric"
            self._once(f"nodes have {why}: a node that restarts becomes a new client. {_KEYS}; {advice}.")
        elif key:  # in a simulation there is nobody to lie
            self._once(
                f"nodes have no keys that outlive them, so clients are who they say they are ({self.metric}): a node "
                f"that reports another's is taken for it while that one is away. {_KEYS}."
            )

    def _assign(self, node_id: int, client: int) -> None:
        self._nodes[node_id] = client
        if self._node_of.get(client, node_id) != node_id:
            self._moved.add(client)
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
            self._news.add(client)
        return self._clients[identity]

    def _once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("equifl: %s", message)
