"""Flower federations in which nodes reply with anything: only their replies are lost, and they are named.

Longer than 300 lines because half of it is the list of what can be wrong with a reply, and how to make it so.
"""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from equifl import DivFL, PowerOfChoice, Rota, SubTrunc, Uniform, UnionFL
from equifl.aggregators import ByLoss, Memory, QFedAvg
from equifl.flower import FairSelection
from equifl.flower.replies import decoded
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import PretendGrid

QUICK = 30
NODES, K, ROUNDS = 8, 5, 4
SELECTORS = {"rota": Rota, "subtrunc": SubTrunc, "uniform": Uniform, "divfl": DivFL, "unionfl": UnionFL}
SELECTORS |= {"power_of_choice": PowerOfChoice}
RULES: dict[str, Any] = {
    "memory": Memory(),
    "memory by loss": Memory(q=1.0),
    "loss": ByLoss(),
    "q_fedavg": QFedAvg(L=2.0),
}
STRATEGIES: dict[str, Callable[[], Any]] = {
    "fedavg": flower.FedAvg,
    "fedmedian": flower.FedMedian,
    "fedadam": flower.FedAdam,
    "fedtrimmedavg": flower.FedTrimmedAvg,
    "krum": flower.Krum,
    "qfedavg": lambda: flower.QFedAvg(client_learning_rate=0.5),
}
NUMBERS = [
    "nan",
    "inf",
    "-inf",
    0,
    -1,
    -0.5,
    1e308,
    -1e308,
    5e-324,
    2**63,
    "huge",
    [],
    [1, 2],
    [0.5],
    ["nan"],
    ["huge"],
]
DTYPES = ["<U5", "S3", "complex64", "bool", "int8", "uint64", "float16", ">f4", "float64", "longdouble", "M8[s]", "V4"]
HEADERS = [
    "{'descr': '|O', 'fortran_order': False, 'shape': (20, 10)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 10)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (20, 10)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 200)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (20L, 10L)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 200}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1)}",
    "{'descr': '(2,)<f4', 'fortran_order': False, 'shape': (100,)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (20, 10)}",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (0,)}",
    "{'shape': ()}",
    "[" * 5000,
    "-" * 5000 + "1",
    "",
]
TEXTS = ["", "a\nb", "\x00", "\x1b[31m", "x" * 100_000, "é" * 300, "0"]
# What can be wrong, with the values it can have; a reply may have several faults.
FAULTS: dict[str, list[Any]] = {
    "cut": [0, 1, 7, 8, 9, 10, 64, 127, 128, 129, -1, -4],
    "flip": list(range(0, 140, 3)),
    "append": [1, 4, 1000],
    "noise": [0, 10, 128, 5000],
    "stored as": ["npz", "pickle", "text", "version 2", "version 9"],
    "stype": ["", "torch.tensor", "numpy.ndarray.gz", "x" * 10_000],
    "header": HEADERS,
    "dtype": DTYPES,
    "shape": [[0], [], [1], [200], [10, 20], [20, 10, 1], [1, 20, 10], [0, 10], [19, 10]],
    "fill": ["nan", "inf", "-inf", 3.4e38, 2e38, 1e36, 1e20, -1e300, 0],
    "arrays": ["drop", "add", "rename", "reverse", "none", "two records", "no record", "rename record", "to config"],
    "metrics": ["add", "none", "two records", "no record", "rename record", "to config"],
    "metric": [
        [name, value] for name in ("num-examples", "train_loss", "eval_acc", "loss", "sketch") for value in NUMBERS
    ],
    "lack": ["num-examples", "train_loss", "eval_acc", "partition-id", "loss", "sketch"],
    "identity": [*NUMBERS, *TEXTS, 3],
    "message": ["error", "error without reason", "long error", "another", "of another node", "twice", "silent"],
}
# Faults after which a training reply cannot be used, whatever the strategy.
HOPELESS = {
    "cut": [*FAULTS["cut"]],
    "append": FAULTS["append"],
    "noise": FAULTS["noise"],
    "stored as": ["npz", "pickle", "text", "version 9"],
    "stype": FAULTS["stype"],
    "header": [
        one for one in HEADERS if "(True, 200)" not in one and "L, 1" not in one and "True, 'shape': (20" not in one
    ],
    "dtype": ["<U5", "S3", "complex64", "M8[s]", "V4", "longdouble"],
    "shape": FAULTS["shape"],
    "fill": ["nan", "inf", "-inf", 3.4e38, 2e38],
    "arrays": ["drop", "add", "rename", "reverse", "none", "two records", "no record", "to config"],
    "metrics": ["none", "two records", "no record", "to config"],
    "metric": [["num-examples", value] for value in NUMBERS if value != 5e-324],
    "lack": ["num-examples"],
    "message": ["error", "error without reason", "long error"],
}


def make(rng: np.random.Generator) -> list[Any]:
    def one_of(values: Any) -> Any:
        return list(values)[rng.integers(len(values))]

    steps: list[Any] = [
        {
            "selector": one_of(SELECTORS),
            "strategy": "fedavg" if rng.random() < 0.6 else one_of(STRATEGIES),
            "probe": one_of(["never", "never", "newcomers", "everyone"]),
            "identity": one_of(["partition-id", None]),
            "seed": int(rng.integers(2**31)),
            "folder": bool(rng.random() < 0.2),
        }
    ]
    if steps[0]["strategy"] in ("fedavg", "fedadam") and rng.random() < 0.3:
        steps[0]["rule"] = one_of(RULES)
    for number in range(1, ROUNDS + 1):
        for kind in ("query", "train", "evaluate"):
            # The first replies say what replies look like, so most of them are honest.
            most = 2 if number == 1 else int(one_of([1, 3, NODES, NODES]))
            for node in rng.permutation(NODES)[:most].tolist():
                names = [one_of(FAULTS) for _ in range(1 if rng.random() < 0.7 else 3)]
                faults = [[name, one_of(FAULTS[name]), int(rng.integers(2**16))] for name in names]
                steps.append({"round": number, "kind": kind, "node": node, "faults": faults})
    return steps


def play(steps: list[Any], folder: Path) -> Counter[str]:
    about: dict[str, Any] = {"selector": "rota", "strategy": "fedavg", "probe": "never", "identity": None, "seed": 0}
    about |= next((step for step in steps if "selector" in step), {})
    plan = {(step["round"], step["kind"], step["node"]): step["faults"] for step in steps if "faults" in step}
    grid = Hostile(plan)
    fair = FairSelection(
        STRATEGIES[about["strategy"]](),
        SELECTORS[about["selector"]](),
        k=K,
        seed=about["seed"],
        identity=about["identity"],
        probe=about["probe"],
        patience=0,
        folder=folder / "run" if about.get("folder") else None,
        aggregator=RULES[about["rule"]] if "rule" in about else None,
    )
    averages = about["strategy"] == "fedavg" and "rule" not in about
    model, counts = initial_arrays(), Counter[str]()

    def after_round(number: int, arrays: ArrayRecord) -> None:
        nonlocal model
        if number:
            check_round(grid, fair, logged, model, arrays, averages=averages)
            counts.update(grid.counts, rounds=1)
            counts["set aside"] += len(named(logged))
            grid.next_round()
            logged.clear()
        model = arrays.copy()

    with inside_a_run(), heard() as logged, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about casts
        grid.next_round()
        fair.start(grid=grid, initial_arrays=model, num_rounds=ROUNDS, evaluate_fn=after_round)
    assert fair.rounds_played == ROUNDS
    return counts


def check_round(
    grid: Hostile,
    fair: FairSelection,
    logged: list[str],
    before: ArrayRecord,
    after: ArrayRecord,
    *,
    averages: bool,
) -> None:
    """Nobody is lost without a word, nobody honest is lost, and the model is the average of what was used."""
    assert all(np.isfinite(array.numpy()).all() for array in after.values()), "the model is not finite"
    names = named(logged)
    row = json.loads(json.dumps(fair._row, allow_nan=False))
    recorded = set(fair.clients.of({node for node, kind in names if kind != "ignored"}).tolist())
    assert (
        recorded
        <= set(row["set_aside"])
        <= set(fair.clients.of({node for node, _ in names if node in grid.partitions}).tolist())
    ), row
    aside = {node for node, kind in names if kind == "reply"}
    assert grid.stray <= {node for node, kind in names if kind == "ignored"}, "a reply to another message was taken"
    trained = grid.delivered["train"]
    model_is_usable = all(abs(array.numpy()).max() < 1e9 for array in before.values())  # a fault may have spoilt it
    honest = [node for node in trained if not grid.faults_of("train", node)] if model_is_usable else []
    if len(honest) > len(trained) / 2:
        assert not aside & set(honest), f"honest, and set aside: {logged}"
    for node in trained:
        faults = grid.faults_of("train", node)
        hopeless = any(value in HOPELESS.get(name, []) for name, value, _ in faults)
        assert node in aside or not (len(faults) == 1 and hopeless), f"{faults} of node {node} was not noticed"
    if averages:
        used = [reply for node, reply in trained.items() if node not in aside]
        used.sort(key=lambda reply: types(first(reply.content, ArrayRecord)) != types(before))
        expected = flower.FedAvg().aggregate_train(1, used)[0] or before
        assert list(expected) == list(after)
        assert all(expected[key].data == after[key].data for key in after), "not the average of the replies used"


def types(arrays: Any) -> list[np.dtype[Any]]:
    return [array.numpy().dtype for array in arrays.values()]


def named(logged: list[str]) -> set[tuple[int, str]]:
    """The nodes that warnings name, and what of them: a reply, an evaluation, an answer, or an ignored one."""
    found = set()
    for line in logged:
        if match := re.search(
            r"(?:a (reply)|an (evaluation)|the (answer) to a probe) of node (\d+).* is set aside", line
        ):
            found.add((int(match[4]), match[1] or match[2] or match[3]))
        elif match := re.search(r"a reply of node (\d+) came late or twice", line):
            found.add((int(match[1]), "ignored"))
    return found


class Hostile(PretendGrid):
    """A grid on which nodes reply as planned: round, kind and number of a node -> its faults."""

    def __init__(self, plan: dict[tuple[int, str, int], list[Any]]) -> None:
        super().__init__({1000 + 37 * i % 101: i for i in range(NODES)})
        self.plan, self.number = plan, 0
        self.faults = dict.fromkeys(self.partitions, self.deliver)

    def next_round(self) -> None:
        self.number += 1
        self.delivered: dict[str, dict[int, Message]] = {"query": {}, "train": {}, "evaluate": {}}
        self.stray: set[int] = set()  # nodes that replied to another message, or that do not exist
        self.counts = Counter[str]()

    def faults_of(self, kind: str, node: int) -> list[Any]:
        return self.plan.get((self.number, kind, self.partitions[node]), [])

    def deliver(self, question: Message, honest: Message) -> list[Message]:
        kind, node = question.metadata.message_type.split(".")[0], question.metadata.dst_node_id
        replies = spoilt(question, honest, self.faults_of(kind, node))
        self.counts.update(replies=len(replies), spoilt=len(replies) if self.faults_of(kind, node) else 0)
        for reply in replies[:1]:
            sender = reply.metadata.src_node_id
            if sender == node and reply.metadata.reply_to_message_id == question.metadata.message_id:
                self.delivered[kind][node] = reply
            else:
                self.stray.add(sender)
        return replies


def spoilt(question: Message, honest: Message, faults: list[Any]) -> list[Message]:
    """What arrives instead of an honest reply."""
    if honest.has_error():
        return [honest]
    records: dict[str, Any] = dict(honest.content.items())
    for name, value, seed in faults:
        if name != "message":
            SPOIL[name](records, value, np.random.default_rng(seed))
    reply = Message(RecordDict(records), reply_to=question)
    how = [value for name, value, _ in faults if name == "message"]
    for word in how:
        if "error" in word:
            reason = {"error": "out of memory", "long error": "no\n" * 50_000}.get(word)
            return [Message(Error(code=0, reason=reason), reply_to=question)]
        if word == "another":
            reply.metadata.__dict__["_reply_to_message_id"] = "of another round"
        if word == "of another node":
            reply.metadata.__dict__["_src_node_id"] = 7
    return [] if "silent" in how else [reply] * (2 if "twice" in how else 1)


def number(value: Any) -> Any:
    """A number that JSON cannot hold."""
    if isinstance(value, list):
        return [number(one) for one in value]
    return {"huge": 10**5000}.get(value) or float(value) if isinstance(value, str) else value


def first(records: Any, kind: type) -> Any:
    return next((record for record in records.values() if isinstance(record, kind)), kind())


def change_array(change: Callable[[Array, Any, np.random.Generator], Array]) -> Callable[..., None]:
    def spoil(records: dict[str, Any], value: Any, rng: np.random.Generator) -> None:
        name = next((name for name, record in records.items() if isinstance(record, ArrayRecord) and record), None)
        if name is not None:
            record = records[name].copy()
            key = list(record)[rng.integers(len(record))]
            record[key] = change(record[key], value, rng)
            records[name] = record

    return spoil


def with_data(array: Array, data: bytes) -> Array:
    return Array(array.dtype, tuple(array.shape), array.stype, data)


def flipped(array: Array, value: int, rng: np.random.Generator) -> Array:
    data = bytearray(array.data)
    if data:
        data[value % len(data)] ^= int(rng.integers(1, 256))
    return with_data(array, bytes(data))


def stored(array: Array, value: str, rng: np.random.Generator) -> Array:
    file, content = io.BytesIO(), np.zeros((20, 10), np.float32)
    if value == "npz":
        np.savez_compressed(file, content)
    elif value == "pickle":
        file.write(pickle.dumps(content))
    elif value == "text":
        np.savetxt(file, content)
    else:
        np.lib.format.write_array(file, content, version=(2, 0))
        file.getbuffer()[6] = int(value.split()[1])
    return with_data(array, file.getvalue())


def headed(array: Array, value: str, rng: np.random.Generator) -> Array:
    return with_data(array, b"\x93NUMPY\x01\x00" + len(value).to_bytes(2, "little") + value.encode() + bytes(800))


def typed(array: Array, value: str, rng: np.random.Generator) -> Array:
    return Array(np.zeros(readable(array).shape, np.uint8).astype(value))


def shaped(array: Array, value: list[int], rng: np.random.Generator) -> Array:
    return Array(np.zeros(value, np.float32))


def filled(array: Array, value: Any, rng: np.random.Generator) -> Array:
    fill = float(value)
    return Array(np.full(readable(array).shape, fill, np.float64 if abs(fill) == 1e300 else np.float32))


def readable(array: Array) -> Any:
    try:
        return decoded(array)
    except Exception:  # an earlier fault
        return np.zeros((20, 10), np.float32)


def spoil_records(kind: type, name: str, extra: Callable[[Any], Any]) -> Callable[..., None]:
    """Faults of a whole record; `extra` is what is added to it."""

    def spoil(records: dict[str, Any], value: str, rng: np.random.Generator) -> None:
        record = first(records, kind).copy()
        there = [key for key, one in records.items() if isinstance(one, kind)]
        entries = list(record.items())
        for key in there if value != "two records" else []:
            del records[key]
        if value == "two records":
            records[f"more {name}"] = record
        elif value == "rename record":
            records[f"my {name}"] = record
        elif value == "to config":
            records[name] = ConfigRecord({"text": "a", "bytes": b"\x00", "yes": True, "partition-id": "x" * 1000})
        elif value != "no record":
            if value == "none":
                entries = []
            elif value == "drop":
                entries = entries[1:]
            elif value == "reverse":
                entries = entries[::-1]
            elif value == "rename":
                entries = [("other", one) if i == 0 else (key, one) for i, (key, one) in enumerate(entries)]
            elif value == "add":
                entries.append(("more", extra(record)))
            records[name] = kind(dict(entries))

    return spoil


def change_metrics(change: Callable[[dict[str, Any], Any], None]) -> Callable[..., None]:
    def spoil(records: dict[str, Any], value: Any, rng: np.random.Generator) -> None:
        for name, record in records.items():
            if isinstance(record, MetricRecord):
                metrics = dict(record)
                change(metrics, value)
                records[name] = MetricRecord(metrics)

    return spoil


def identify(records: dict[str, Any], value: Any, rng: np.random.Generator) -> None:
    if not isinstance(value, str) or value in NUMBERS:
        change_metrics(lambda metrics, value: metrics.update({"partition-id": number(value)}))(records, value, rng)
    if value not in (["huge"], "huge"):
        records["identity"] = ConfigRecord({"partition-id": number(value) if value in NUMBERS else value})


SPOIL: dict[str, Callable[..., None]] = {
    "cut": change_array(lambda array, value, rng: with_data(array, array.data[:value])),
    "flip": change_array(flipped),
    "append": change_array(lambda array, value, rng: with_data(array, array.data + bytes(value))),
    "noise": change_array(lambda array, value, rng: with_data(array, rng.bytes(value))),
    "stored as": change_array(stored),
    "stype": change_array(lambda array, value, rng: Array(array.dtype, tuple(array.shape), value, array.data)),
    "header": change_array(headed),
    "dtype": change_array(typed),
    "shape": change_array(shaped),
    "fill": change_array(filled),
    "arrays": spoil_records(ArrayRecord, "arrays", lambda record: Array(np.zeros(3, np.float32))),
    "metrics": spoil_records(MetricRecord, "metrics", lambda record: 0.5),
    "metric": change_metrics(lambda metrics, pair: metrics.update({pair[0]: number(pair[1])})),
    "lack": change_metrics(lambda metrics, name: metrics.pop(name, None)),
    "identity": identify,
}


@contextmanager
def heard() -> Iterator[list[str]]:
    """What is logged as a warning; nothing is printed."""
    log, lines = logging.getLogger("flwr"), list[str]()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    kept, level, log.handlers, log.propagate = log.handlers, log.level, [handler], False
    log.setLevel(logging.WARNING)
    try:
        yield lines
    finally:
        log.handlers, log.propagate = kept, True
        log.setLevel(level)


@contextmanager
def inside_a_run() -> Iterator[None]:
    """Flower's messages can be made only within a run."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # older ones can be made anywhere
        yield
        return
    before = {name: getattr(TaskIdentity, name) for name in ("_task_id", "_run_id", "_node_id")}
    for name in before:
        setattr(TaskIdentity, name, 1)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)
