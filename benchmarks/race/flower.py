"""Flower's simulation: as many actors as cores, PyTorch with one thread in each.

By `run_simulation`, which Flower would have replaced by its command line, but which starts nothing beside Ray. Model
and data stay in the actor between rounds, the replies carry what FedAvg needs and the number of steps, and nobody
evaluates. All clients have as many examples, so FedAvg's mean is the plain one.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

from equifl.sim.models.zoo import lenet
from race.course import CLIENTS, COHORT, EXAMPLES, RATE, Course, Stopwatch, batches, loss_of

app = ClientApp()


@functools.cache
def actor(folder: str) -> tuple[Any, ...]:
    """What a process keeps."""
    torch.set_num_threads(1)
    arrays = Course("A", 0, folder, 0.0).data()
    x, y = map(torch.from_numpy, arrays)
    return lenet(x.shape[2:], 10), x, y, np.random.default_rng(os.getpid()), Stopwatch()


@app.train()
def train(message: Message, context: Context) -> Message:
    content: Any = message.content
    module, x, y, rng, watch = actor(content["config"]["folder"])
    client, before = int(context.node_config["partition-id"]), watch.steps
    module.load_state_dict(content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    for inputs, labels in batches(x[client], y[client], content["config"]["taken"], rng):
        optimizer.zero_grad()
        cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    metrics = MetricRecord({"steps": watch.steps - before, "num-examples": EXAMPLES})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)


class Timed(FedAvg):
    """FedAvg, the end of its rounds, and the steps its clients took."""

    def __init__(self) -> None:
        share = COHORT / CLIENTS  # of the nodes there are, so at least ten, while they are still coming
        nodes: Any = {"min_train_nodes": COHORT, "min_available_nodes": CLIENTS}
        super().__init__(fraction_train=share, fraction_evaluate=0.0, **nodes)
        self.watch, self.steps = Stopwatch(), 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        self.steps += sum(reply.content["metrics"]["steps"] for reply in replies)
        found = super().aggregate_train(server_round, replies)
        self.watch.lap()
        return found


def run(course: Course) -> dict[str, Any]:
    arrays = course.data()
    module, strategy, server = lenet(arrays[0].shape[2:], 10), Timed(), ServerApp()
    losses = [loss_of(module, *arrays)]

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        config = ConfigRecord({"folder": course.folder, "taken": course.taken})
        initial = ArrayRecord(module.state_dict())
        done = strategy.start(grid, initial, num_rounds=1 + course.rounds, train_config=config, timeout=120)
        module.load_state_dict(done.arrays.to_torch_state_dict())
        losses.append(loss_of(module, *arrays))

    one_core: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server_app=server, client_app=app, num_supernodes=CLIENTS, backend_config=one_core)
    return course.report(strategy.watch.ends, strategy.steps, (losses[0], losses[1]))
