"""A grid in this process: nodes that answer at once, by the real ClientApp, and misbehave on demand.

And how tests play rounds on it, and read what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.flower import FairSelection
from tests.flower.federation import app
from tests.own_selector import Plain

ALL = [Uniform(), PowerOfChoice(), DivFL(), SubTrunc(), UnionFL(), Rota(), Plain(1)]
START = datetime(2026, 1, 1, tzinfo=UTC)
Fault = Callable[[Message, Message], Iterable[Message]]  # question, honest reply -> what arrives


class PretendGrid(Grid):
    """Nodes by id; `partition` of each; a node's `fault` decides what of its reply arrives."""

    def __init__(self, partitions: dict[int, int], **about: Any) -> None:
        self.partitions = dict(partitions)
        self.offline: set[int] = set()
        self.faults: dict[int, Fault] = {}
        self.asked: list[tuple[str, int]] = []
        self.timeouts: list[tuple[str, float | None]] = []
        self.looks: dict[int, int] = {}  # of a node: its replies are there at which pull (default the first)
        self._under_way: list[tuple[int, Message]] = []
        self.about = about

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.partitions if node not in self.offline]

    def get_nodes(self) -> Iterable[Any]:
        for node in self.get_node_ids():
            registered = (START + timedelta(seconds=self.partitions[node])).isoformat()
            about = {"public_key": b"", "name": ""}
            about |= {key: value(self.partitions[node]) for key, value in self.about.items()}
            yield SimpleNamespace(node_id=node, registered_at=registered, **about)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        self.timeouts += [(sent[0].metadata.message_type, timeout)] if sent else []
        return list(self._replies(sent))

    def _replies(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            node = message.metadata.dst_node_id
            self.asked.append((message.metadata.message_type, node))
            message.metadata.__dict__["_message_id"] = f"m{len(self.asked)}"
            config: dict[str, Any] = {"partition-id": self.partitions[node]}
            context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
            honest: Message = app(message, context)
            yield from self.faults.get(node, honestly)(message, honest)

    def asked_to(self, kind: str) -> list[int]:
        return [node for asked, node in self.asked if asked == kind]

    run = None  # type: ignore[assignment]

    def set_run(self, run: Any) -> None: ...

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        first = len(self.asked)
        self._under_way += [(self.looks.get(one.metadata.src_node_id, 1), one) for one in self._replies(sent)]
        return [f"m{first + i + 1}" for i in range(len(sent))]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = set(message_ids)
        mine = [(looks - 1, one) for looks, one in self._under_way if one.metadata.reply_to_message_id in ids]
        self._under_way = [pair for pair in mine if pair[0] > 0]
        return [one for looks, one in mine if looks <= 0]


def honestly(question: Message, reply: Message) -> list[Message]:
    return [reply]


def silent(question: Message, reply: Message) -> list[Message]:
    return []


def twice(question: Message, reply: Message) -> list[Message]:
    return [reply, reply]


def failing(question: Message, reply: Message) -> list[Message]:
    return [Message(Error(code=0, reason="out of memory"), reply_to=question)]


def saying(**metrics: float) -> Fault:
    """The honest reply, but for these metrics."""

    def fault(question: Message, reply: Message) -> list[Message]:
        record = next(iter(reply.content.metric_records.values()))
        for name, value in metrics.items():
            if name in record:
                record[name] = value
        return [reply]

    return fault


def without(metric: str) -> Fault:
    def fault(question: Message, reply: Message) -> list[Message]:
        records = {
            name: MetricRecord({k: v for k, v in record.items() if k != metric})
            for name, record in reply.content.metric_records.items()
        }
        return [Message(RecordDict({**reply.content.array_records, **records}), reply_to=question)]

    return fault


def weighing(number: float) -> Fault:
    """Weights that are all this number."""

    def fault(question: Message, reply: Message) -> list[Message]:
        if not reply.content.array_records:
            return [reply]
        arrays = [0 * array.numpy() + number for array in reply.content["arrays"].values()]  # type: ignore[union-attr]
        metrics = next(iter(reply.content.metric_records.values()))
        return [Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=question)]

    return fault


def play(strategy: Any, grid: PretendGrid, rounds: int, arrays: ArrayRecord | None = None) -> Any:
    from tests.flower.federation import initial_arrays

    return strategy.start(
        grid=grid, initial_arrays=arrays or initial_arrays(), num_rounds=rounds, train_config=ConfigRecord({})
    )


def grid_of(clients: int = 8, *, first: int = 1000) -> PretendGrid:
    return PretendGrid({first + 37 * i % 101: i for i in range(clients)})


def fair(selector: Selector, inner: Any = None, **options: Any) -> FairSelection:
    wanted: dict[str, Any] = {"k": 3, "identity": "partition-id", "patience": 0.5}
    return FairSelection(inner or FedAvg(), selector, **wanted | options)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def cohorts(folder: Path) -> list[list[int]]:
    return [row["cohort"] for row in rows(folder)]
