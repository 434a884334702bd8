"""A small federation that is cheap to run for real: softmax regression in numpy on clients of three classes each."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from equifl.flower import probe

CLASSES, FEATURES = 10, 20
Floats = NDArray[np.float64]

app = ClientApp()


def initial_arrays() -> ArrayRecord:
    return ArrayRecord([np.zeros((FEATURES, CLASSES), np.float32), np.zeros(CLASSES, np.float32)])


def data_of(partition: int, examples: int = 60) -> tuple[Floats, NDArray[np.int64]]:
    """The same classes for everyone, of which a client has three."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng([1, partition])
    labels = rng.choice((partition + np.array([0, 3, 5])) % CLASSES, examples)
    return centres[labels] + 0.8 * rng.normal(size=(examples, FEATURES)), labels


def loss_and_gradient(
    weights: list[NDArray[np.float32]], x: Floats, y: NDArray[np.int64]
) -> tuple[float, list[Floats]]:
    scores = x @ weights[0] + weights[1]
    scores -= scores.max(axis=1, keepdims=True)
    chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    wrong = chance.copy()
    wrong[np.arange(len(y)), y] -= 1
    return float(-np.log(chance[np.arange(len(y)), y] + 1e-12).mean()), [x.T @ wrong / len(y), wrong.mean(axis=0)]


def partition_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


@app.train()
def train(message: Message, context: Context) -> Message:
    weights = message.content["arrays"].to_numpy_ndarrays()  # type: ignore[union-attr]
    weights = [array.copy() for array in weights[:2]]  # what else a test may send is not trained
    x, y = data_of(partition_of(context))
    for _ in range(5):
        loss, gradient = loss_and_gradient(weights, x, y)
        weights = [(w - 0.5 * g).astype(np.float32) for w, g in zip(weights, gradient, strict=True)]
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y), "partition-id": partition_of(context)})
    return Message(RecordDict({"arrays": ArrayRecord(weights), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    weights = message.content["arrays"].to_numpy_ndarrays()  # type: ignore[union-attr]
    x, y = data_of(partition_of(context))
    right = float(((x @ weights[0] + weights[1]).argmax(axis=1) == y).mean())
    metrics = MetricRecord({"eval_acc": right, "num-examples": len(y), "partition-id": partition_of(context)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@probe(app)
def answer(arrays: ArrayRecord, context: Context) -> tuple[float, list[Floats], int]:
    x, y = data_of(partition_of(context))
    loss, gradient = loss_and_gradient(arrays.to_numpy_ndarrays(), x, y)
    return loss, gradient, len(y)
