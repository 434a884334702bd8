"""What the server knows of its clients: their identities and their signals."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from equifl.flower.replies import (
    MisfitError,
    SetAsideError,
    TrainNews,
    decoded,
    metrics_of,
    read_answer,
    read_evaluation,
    read_training,
)
from equifl.flower.roster import Roster
from equifl.flower.wrapped import nodes_of
from equifl.outliers import outlier_bound
from equifl.signals import Floats, Ints, Signals
from equifl.sketch import CountSketch
from equifl.store import SignalStore

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Keys:
    """Names of the metrics."""

    loss: str
    accuracy: str
    size: str


class Clients:
    """A roster, and a store that grows with it. `guard`: clip implausible outliers (`equifl.outliers`)."""

    def __init__(
        self, roster: Roster, keys: Keys, needs: frozenset[str], sketch: CountSketch, *, guard: bool = True
    ) -> None:
        self._roster, self._keys, self._needs, self._sketch, self._guard = roster, keys, needs, sketch, guard
        self._store: SignalStore | None = None
        self._fits = False  # whether any reply was usable so far

    def __len__(self) -> int:
        return len(self._roster)

    def meet(self, grid: Grid) -> list[int]:
        """The nodes that are online, in the order in which they were first seen."""
        online = set(grid.get_node_ids())
        self._roster.online(online)
        if self._roster.unmet():  # else no request: Flower copies the information on all nodes
            self._roster.meet(node for node in nodes_of(grid) if node.node_id in online)
        return self._roster.in_order(online)

    def of(self, node_ids: Iterable[int]) -> Ints:
        """The clients of these nodes."""
        clients = self._roster.clients(node_ids)
        self._make_room()
        return clients

    def unknown(self, node_ids: Iterable[int]) -> list[int]:
        """Nodes whose identity is unknown, or whose client's loss is unknown and needed."""
        known = [node for node in node_ids if self._roster.knows(node)]
        done = dict(zip(known, self._done(known), strict=True))
        return [node for node in node_ids if not done.get(node, False)]

    def signals(self, round: int | None, node_ids: Iterable[int]) -> Signals:
        """`Signals` at the start of a round (None: after all rounds), with these nodes available."""
        here = self.of(node_ids)
        assert self._store is not None, "no node was seen yet"
        available = np.zeros(len(self._store), bool)
        available[here] = True
        return self._store.signals(np.iinfo(np.int64).max if round is None else round, available=available)

    def read_training(
        self, round: int, replies: Iterable[Message], sent: ArrayRecord, *, signals: bool
    ) -> dict[int, TrainNews]:
        """The contents of the usable replies, by node; the others are set aside, with a warning each.

        Without `signals` the replies are only checked, since the selector's signals then come from probes. If no reply
        was ever usable, and the reason is how the client is written, it raises ValueError.
        """
        news: dict[int, TrainNews] = {}
        misfits: list[MisfitError] = []
        wanted = self._needs if signals else frozenset[str]()
        model = {key: decoded(array) for key, array in sent.items()}
        for reply in replies:
            node = reply.metadata.src_node_id
            metrics = metrics_of(reply)
            self.recognise(node, metrics)
            try:
                news[node] = read_training(
                    reply,
                    metrics,
                    model,
                    loss=self._keys.loss,
                    size=self._keys.size,
                    needs=wanted,
                    sketch=self._sketch,
                )
            except SetAsideError as error:
                log.warning("equifl: round %d: %s is set aside: %s", round + 1, self._roster.named(node), error)
                misfits += [error] if isinstance(error, MisfitError) else []
        self._fits = self._fits or bool(news)
        if misfits and not self._fits:
            raise ValueError(
                f"equifl: no reply can be used: {misfits[0]}. The selector needs {' and '.join(sorted(wanted))}; let "
                "the client send it, name its metric (loss='...'), or give a selector of your own `needs`"
            )
        return news

    def remember_training(
        self, round: int, asked: Iterable[int], news: Mapping[int, TrainNews], *, signals: bool
    ) -> None:
        """Store the selection of these nodes, and the contents of their replies."""
        who = np.unique(self.of(asked))
        assert self._store is not None, "no node was seen yet"
        self._store.observe(who, round=round)
        self._remember(news if signals else {node: TrainNews(None, None, one.size, 0) for node, one in news.items()})

    def read_answers(self, replies: Iterable[Message], *, fresh: bool) -> int:
        """Store the answers to a probe, unless `fresh` only those of unknown clients; returns their bytes."""
        news, total = {}, 0
        for reply in self._by_identity(replies):
            node = reply.metadata.src_node_id
            if reply.has_error():
                log.warning("equifl: %s did not answer the probe: %s", self._roster.named(node), reply.error.reason)
                continue
            for record in reply.content.config_records.values():
                self.recognise(node, record)
            try:
                answer = read_answer(reply, self._sketch if fresh and "updates" in self._needs else None)
            except SetAsideError as error:
                log.warning("equifl: the answer of %s is set aside: %s", self._roster.named(node), error)
                continue
            total += answer.bytes
            news[node] = answer
        if not fresh:
            news = {node: news[node] for node, done in zip(news, self._done(list(news)), strict=True) if not done}
        self._remember(news)
        return total

    def read_evaluations(self, round: int, replies: Iterable[Message]) -> dict[int, tuple[float, float]]:
        """Accuracy and number of examples of each client that reported them; one warning a reason for the others."""
        found: dict[int, tuple[float, float]] = {}
        aside: Counter[str] = Counter()
        for reply in replies:
            node = reply.metadata.src_node_id
            metrics = metrics_of(reply)
            self.recognise(node, metrics)
            try:
                found[int(self.of([node])[0])] = read_evaluation(metrics, self._keys.accuracy, self._keys.size)
            except SetAsideError as error:
                aside[str(error)] += 1
        for reason, count in aside.items():
            log.warning("equifl: round %d: %d evaluations do not count for fairness: %s", round + 1, count, reason)
        return found

    def recognise(self, node: int, record: Mapping[str, Any]) -> None:
        """Read the identity of a node from a reply."""
        free = self._roster.recognise(node, record)
        if free is not None and self._store is not None:
            self._store.forget([free])

    def in_order(self, replies: Iterable[Message]) -> list[Message]:
        """Replies in the order in which their nodes were first seen: results must not depend on arrival times."""
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        return [by_node[node] for node in self._roster.in_order(by_node)]

    def taken(self) -> Ints:
        """The ids that belong to a client."""
        return np.flatnonzero([bool(identity) for identity in self._roster.identities])

    def state(self) -> dict[str, NDArray[Any]]:
        """The whole state as plain arrays."""
        stored = {} if self._store is None else self._store.state_dict()
        nodes = self._roster.nodes
        return {f"store.{key}": array for key, array in stored.items()} | {
            "identities": np.array(self._roster.identities, np.str_),
            "nodes": np.array(list(nodes), np.uint64),
            "clients_of_nodes": np.array(list(nodes.values()), np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        nodes = dict(zip(state["nodes"].tolist(), state["clients_of_nodes"].tolist(), strict=True))
        self._roster = Roster(self._roster.metric, state["identities"].tolist(), nodes)
        self._make_room()
        if self._store is not None:
            prefix = "store."
            self._store.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
            self._fits = bool((self._store.signals(np.iinfo(np.int64).max).times_selected > 0).any())

    def _make_room(self) -> None:
        if self._store is None and len(self._roster):
            self._store = SignalStore(len(self._roster), guard=self._guard, sketch=self._sketch)
        elif self._store is not None:
            self._store.grow(len(self._roster))

    def _done(self, nodes: list[int]) -> list[bool]:
        """For each node, whether its client's loss is known or not needed."""
        if "losses" not in self._needs or not nodes:
            return [True] * len(nodes)
        return self.signals(None, []).knows_loss[self.of(nodes)].tolist()

    def _remember(self, news: Mapping[int, TrainNews]) -> None:
        for name, field in (("losses", "loss"), ("updates", "update"), ("sizes", "size")):
            reported = {node: getattr(one, field) for node, one in news.items() if getattr(one, field) is not None}
            if reported and (name == "sizes" or name in self._needs):
                who, values = self.of(reported), np.array(list(reported.values()))
                if name == "updates" and self._guard:
                    values = self._clipped(who, values)
                assert self._store is not None, "no node was seen yet"
                self._store.observe(who, **{name: values})  # type: ignore[arg-type]

    def _clipped(self, who: Ints, updates: NDArray[np.float32]) -> NDArray[np.float32]:
        """The updates, with implausibly large norms scaled down to the outlier bound."""
        length = _lengths(updates)
        lengths, known = length, self.signals(None, []).updates
        if known is not None:
            lengths = _lengths(known)
            lengths[who] = length
        factor = np.minimum(1.0, outlier_bound(lengths) / np.maximum(length, 1e-300))
        return (updates * factor[:, None]).astype(np.float32)

    def _by_identity(self, replies: Iterable[Message]) -> list[Message]:
        """Answers in the order of the identities they report, which does not depend on node ids."""

        def identity(reply: Message) -> tuple[int, str]:
            records = [] if reply.has_error() else reply.content.config_records.values()
            value = next(filter(None, map(self._roster.value, records)), "")
            return len(value), value  # so that 2 comes before 10

        return sorted(self.in_order(replies), key=identity)


def _lengths(updates: Floats) -> Floats:
    """The norm of each row, in float64, where squares of float32 numbers do not overflow."""
    return np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
