"""A client: it trains and evaluates as any Flower client does. All that equifl wants of it are names of metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from equifl.flower import probe
from fair_digits.task import Examples, accuracy, examples_of, loss_and_gradient, new_model, train

app = ClientApp()


def partition_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


def mine(context: Context) -> tuple[Examples, Examples]:
    return examples_of(partition_of(context), int(context.node_config["num-partitions"]))


def model_of(arrays: ArrayRecord) -> nn.Module:
    model = new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return model


@app.train()
def train_here(message: Message, context: Context) -> Message:
    """Train the model that came, and send it back with the loss, for the selectors that want one."""
    model, (examples, _) = model_of(message.content.array_records["arrays"]), mine(context)
    config: dict[str, Any] = {**context.run_config, **message.content.config_records["config"]}
    rng = np.random.default_rng([partition_of(context), config["server-round"]])
    loss = train(model, examples, steps=config["local-steps"], lr=config["learning-rate"], rng=rng)
    metrics = {"train_loss": loss, "num-examples": len(examples[1]), "partition-id": partition_of(context)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({**metrics})})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate_here(message: Message, context: Context) -> Message:
    """How well the global model serves this client."""
    model, (_, examples) = model_of(message.content.array_records["arrays"]), mine(context)
    metrics = {"eval_acc": accuracy(model, examples), "num-examples": len(examples[1])}
    metrics |= {"partition-id": partition_of(context)}
    return Message(RecordDict({"metrics": MetricRecord({**metrics})}), reply_to=message)


@probe(app)
def answer(arrays: ArrayRecord, context: Context) -> tuple[float, list[np.ndarray], int]:
    """What the server may ask before it chooses: loss and gradient at its model, and how many examples they are of."""
    examples, _ = mine(context)
    loss, gradient = loss_and_gradient(model_of(arrays), examples)
    return loss, gradient, len(examples[1])
