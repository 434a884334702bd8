"""FedJAX: its federated averaging, compiled by XLA, which has threads of its own on all cores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import fedjax
import haiku
import jax
import numpy as np
from fedjax.algorithms import fed_avg

from race.course import BATCH, CLIENTS, COHORT, JUDGED, RATE, Course


def lenet(x: Any) -> Any:
    """The same network, channels last, its weights drawn as PyTorch draws them."""
    draw = haiku.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    for channels in (6, 16):
        x = haiku.Conv2D(channels, 5, padding="VALID", w_init=draw)(x)
        x = haiku.max_pool(jax.nn.relu(x), (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = haiku.Flatten()(x)
    for width in (120, 84):
        x = jax.nn.relu(haiku.Linear(width, w_init=draw)(x))
    return haiku.Linear(10, w_init=draw)(x)


def run(course: Course) -> dict[str, Any]:
    inputs, labels = course.data()
    inputs = np.moveaxis(inputs, 2, -1).copy()
    steps = 0

    class Client(fedjax.ClientDataset):  # type: ignore[misc]
        def shuffle_repeat_batch(self, *args: Any, **options: Any) -> Iterator[Any]:
            nonlocal steps
            for batch in super().shuffle_repeat_batch(*args, **options):
                steps += 1
                yield batch

    clients = [Client({"x": x, "y": y}) for x, y in zip(inputs, labels, strict=True)]
    network = haiku.without_apply_rng(haiku.transform(lenet))
    entropy = fedjax.metrics.unreduced_cross_entropy_loss

    def loss(params: Any, batch: Any, rng: Any = None) -> Any:
        return entropy(batch["y"], network.apply(params, batch["x"])).mean()

    judged = {"x": inputs.reshape(-1, *inputs.shape[2:])[:JUDGED], "y": labels.ravel()[:JUDGED]}
    params = network.init(jax.random.PRNGKey(0), judged["x"][:1])
    much = {"num_steps": course.steps} if course.work == "A" else {"num_epochs": 1}
    sgd, mean = fedjax.optimizers.sgd(RATE), fedjax.optimizers.sgd(1.0)
    hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, drop_remainder=False, **much)
    algorithm = fed_avg.federated_averaging(jax.grad(loss), sgd, mean, hparams)
    state, rng, key, ends = algorithm.init(params), np.random.default_rng(0), jax.random.PRNGKey(1), []
    for _ in range(1 + course.rounds):
        cohort = rng.choice(CLIENTS, COHORT, replace=False).tolist()
        state, _ = algorithm.apply(state, [(client, clients[client], key) for client in cohort])
        jax.block_until_ready(state.params)
        ends.append(time.time())
    return course.report(ends, steps, (float(loss(params, judged)), float(loss(state.params, judged))))
