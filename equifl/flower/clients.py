"""What the server knows of its clients: who they are, and what they said."""

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
    """What the metrics are called."""

    loss: str
    accuracy: str
    size: str


class Clients:
    """A roster, and a store that grows with it. With `guard`, a selector sees what is believable (`outliers`)."""

    def __init__(
        self, roster: Roster, keys: Keys, needs: frozenset[str], sketch: CountSketch, *, guard: bool = True
    ) -> None:
        self._roster, self._keys, self._needs, self._sketch, self._guard = roster, keys, needs, sketch, guard
        self._store: SignalStore | None = None
        self._fits = False  # whether a reply could be used yet

    def __len__(self) -> int:
        return len(self._roster)

    def meet(self, grid: Grid) -> list[int]:
        """Who is online, in the order in which they were first met."""
        online = set(grid.get_node_ids())
        self._roster.online(online)
        if self._roster.unmet():  # else Flower need not be asked: it copies all that it knows of all nodes
            self._roster.meet(node for node in nodes_of(grid) if node.node_id in online)
        return self._roster.in_order(online)

    def of(self, node_ids: Iterable[int]) -> Ints:
        """The clients behind these nodes."""
        clients = self._roster.clients(node_ids)
        self._make_room()
        return clients

    def strangers(self, node_ids: Iterable[int]) -> list[int]:
        """Nodes of which it is not known yet which client they are, or what that client's loss is, if it matters."""
        known = [node for node in node_ids if self._roster.knows(node)]
        heard = dict(zip(known, self._done(known), strict=True))
        return [node for node in node_ids if not heard.get(node, False)]

    def signals(self, round: int | None, node_ids: Iterable[int]) -> Signals:
        """What is known as a round begins (None: after all rounds), with these nodes available."""
        here = self.of(node_ids)
        assert self._store is not None, "nobody was met yet"
        available = np.zeros(len(self._store), bool)
        available[here] = True
        return self._store.signals(np.iinfo(np.int64).max if round is None else round, available=available)

    def read_training(
        self, round: int, replies: Iterable[Message], sent: ArrayRecord, *, signals: bool
    ) -> dict[int, TrainNews]:
        """What the usable replies say, by node. Others are set aside and named.

        Without `signals` the replies are only checked: what a selector hears then comes from elsewhere. Where no reply
        was ever usable and the fault lies in how the client is written, it is an error.
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
                "the client send it, say what the loss is called (loss='...'), or give a selector of your own `needs`"
            )
        return news

    def remember_training(
        self, round: int, asked: Iterable[int], news: Mapping[int, TrainNews], *, signals: bool
    ) -> None:
        """Remember who was asked, and what came back."""
        who = np.unique(self.of(asked))
        assert self._store is not None, "nobody was met yet"
        self._store.observe(who, round=round)
        self._remember(news if signals else {node: TrainNews(None, None, told.size, 0) for node, told in news.items()})

    def hear_answers(self, replies: Iterable[Message], *, fresh: bool) -> int:
        """Take note of answers to a probe; returns their bytes. Unless `fresh`, only of clients never heard before."""
        news, total = {}, 0
        for reply in self._by_identity(replies):
            node = reply.metadata.src_node_id
            if reply.has_error():
                log.warning("equifl: %s did not answer the probe: %s", self._roster.named(node), reply.error.reason)
                continue
            for record in reply.content.config_records.values():
                self.recognise(node, record)
            try:
                told = read_answer(reply, self._sketch if fresh and "updates" in self._needs else None)
            except SetAsideError as error:
                log.warning("equifl: the answer of %s is set aside: %s", self._roster.named(node), error)
                continue
            total += told.bytes
            news[node] = told
        if not fresh:
            news = {node: news[node] for node, done in zip(news, self._done(list(news)), strict=True) if not done}
        self._remember(news)
        return total

    def read_evaluations(self, round: int, replies: Iterable[Message]) -> dict[int, tuple[float, float]]:
        """Accuracy and examples of each client whose evaluation says them; of the others one warning a reason."""
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
        """Learn from a reply who a node is."""
        free = self._roster.recognise(node, record)
        if free is not None and self._store is not None:
            self._store.forget([free])

    def in_order(self, replies: Iterable[Message]) -> list[Message]:
        """Replies in the order in which their nodes were met: numbers must not depend on who is fast."""
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        return [by_node[node] for node in self._roster.in_order(by_node)]

    def taken(self) -> Ints:
        """The numbers that are somebody's."""
        return np.flatnonzero([bool(identity) for identity in self._roster.identities])

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it as plain arrays."""
        stored = {} if self._store is None else self._store.state_dict()
        nodes = self._roster.nodes
        return {f"store.{key}": array for key, array in stored.items()} | {
            "identities": np.array(self._roster.identities, np.str_),
            "nodes": np.array(list(nodes), np.uint64),
            "clients_of_nodes": np.array(list(nodes.values()), np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave."""
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
        """Of each node, whether its client's loss was heard, or does not matter."""
        if "losses" not in self._needs or not nodes:
            return [True] * len(nodes)
        return self.signals(None, []).knows_loss[self.of(nodes)].tolist()

    def _remember(self, news: Mapping[int, TrainNews]) -> None:
        for name, field in (("losses", "loss"), ("updates", "update"), ("sizes", "size")):
            told = {node: getattr(one, field) for node, one in news.items() if getattr(one, field) is not None}
            if told and (name == "sizes" or name in self._needs):
                who, values = self.of(told), np.array(list(told.values()))
                if name == "updates" and self._guard:
                    values = self._believable(who, values)
                assert self._store is not None, "nobody was met yet"
                self._store.observe(who, **{name: values})  # type: ignore[arg-type]

    def _believable(self, who: Ints, updates: NDArray[np.float32]) -> NDArray[np.float32]:
        """Updates that are longer than anyone could believe, shortened to the longest that one could."""
        length = _lengths(updates)
        lengths, known = length, self.signals(None, []).updates
        if known is not None:
            lengths = _lengths(known)
            lengths[who] = length
        factor = np.minimum(1.0, outlier_bound(lengths) / np.maximum(length, 1e-300))
        return (updates * factor[:, None]).astype(np.float32)

    def _by_identity(self, replies: Iterable[Message]) -> list[Message]:
        """Answers in the order of what they say of who they are, which is the same whatever the nodes' ids."""

        def identity(reply: Message) -> tuple[int, str]:
            records = [] if reply.has_error() else reply.content.config_records.values()
            value = next(filter(None, map(self._roster.value, records)), "")
            return len(value), value  # so that 2 comes before 10

        return sorted(self.in_order(replies), key=identity)


def _lengths(updates: Floats) -> Floats:
    """The norm of each row; squares of what float32 can hold fit into float64."""
    return np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
