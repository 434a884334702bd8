"""The compiled engine: small networks of convolutions, ReLU, max-pooling and linear layers on a CPU, a task a client.

A network becomes a plan with tables (`network_plan`); `client_work` has the compiled function that works by them.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from equifl._numerics.threads import cores
from equifl.signals import Bools, Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job, Trained
from equifl.sim.engines.compiled.support import obstacle
from equifl.sim.engines.local_training import LocalTraining

TESTED_AT_ONCE = 1024  # examples; so that one model's evaluation, too, runs on all cores


class CompiledEngine:
    """What `Engine` does, by compiled loops: a client's numbers depend on no other client, nor on the cores.

    Compiled code checks no index. So what comes from outside is checked here, once a call.

    Args:
        job: what to work on, if `supports` has no objection.
    """

    name: ClassVar[str] = "compiled"
    packages: ClassVar[tuple[str, ...]] = ("numba",)

    @classmethod
    def supports(cls, job: Job) -> str:
        return obstacle(job)

    def __init__(self, job: Job) -> None:
        from equifl.sim.engines.compiled import client_work  # numba is optional, and takes a second
        from equifl.sim.engines.compiled.network_plan import Network

        dataset = job.dataset
        self.device = torch.device("cpu")
        self._client = client_work
        self._network = Network(job.model.layers, dataset.x_train.shape[1:])
        self._parameters = job.model.parameters
        self._check_model(dataset)
        self._pool = ThreadPoolExecutor(cores(), initializer=torch.set_flush_denormal, initargs=(True,))
        self._own = threading.local()
        torch.set_num_threads(1)  # PyTorch's own would spin beside ours
        self._train, self._test = (
            (np.require(x.reshape(len(x), -1), np.float32, ["C", "W"]), np.require(y, np.int64, ["C", "W"]))
            for x, y in ((dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test))
        )

    def train(
        self,
        weights: Tensor,
        batches: Ints,
        local: LocalTraining,
        runs: Ints | None = None,
        seeds: Ints | None = None,
    ) -> Trained:
        self._check(weights, batches, "(models, steps, batch)")
        trained = torch.empty(weights.shape, dtype=torch.float32)
        options = float(local.lr), float(local.momentum), float(local.weight_decay), float(local.prox)
        losses, steps = self._each(self._client.TRAIN, weights, batches, trained, options)
        return Trained(trained, losses, steps)

    def losses(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> Tensor:
        self._check(weights, examples, "(models, examples)")
        nothing = torch.empty(len(weights), 0, dtype=torch.float32)
        return self._each(self._client.LOSS, weights, examples[:, None], nothing)[0]

    def gradients(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> tuple[Tensor, Tensor]:
        self._check(weights, examples, "(models, examples)")
        gradients = torch.empty(weights.shape, dtype=torch.float32)
        return self._each(self._client.GRADIENT, weights, examples[:, None], gradients)[0], gradients

    def scores(self, weights: Tensor) -> Bools:
        self._check_weights(weights)
        x, y = self._test
        predicted = np.empty((len(weights), len(y)), np.float32)

        def predict(row: int, start: int) -> None:
            part = slice(start, start + TESTED_AT_ONCE)
            examples = np.arange(len(y))[None, part]
            self._work(self._client.PREDICT, (x, y), weights[row].numpy(), examples, predicted[row, part])

        tasks = itertools.product(range(len(weights)), range(0, len(y), TESTED_AT_ONCE))
        list(self._pool.map(predict, *zip(*tasks, strict=True)))
        return predicted == y

    def limit_memory(self, bytes: int, *, models: int, batch: int) -> None:
        """See `Engine.limit_memory`: on a CPU there is nothing to limit."""

    def _each(
        self, job: int, weights: Tensor, examples: Ints, out: Tensor, options: tuple[float, ...] = (0.0,) * 4
    ) -> tuple[Tensor, Tensor]:
        """A task for each row of weights, on the training data: losses, and steps taken."""

        def row(weights: Any, examples: Ints, out: Any) -> tuple[float, int]:
            return self._work(job, self._train, weights, examples, out, options)

        losses, steps = zip(*self._pool.map(row, weights.numpy(), examples, out.numpy()), strict=True)
        return torch.tensor(losses, dtype=torch.float32), torch.tensor(steps)

    def _work(
        self, job: int, data: Any, weights: Any, examples: Ints, out: Any, options: tuple[float, ...] = (0.0,) * 4
    ) -> tuple[float, int]:
        """The one call of compiled code, whose arrays must fit: it would read and write beyond them."""
        filled = {self._client.LOSS: 0, self._client.PREDICT: examples.shape[-1]}.get(job, self._parameters)
        for name, array, dtype, shape in (
            ("weights", weights, np.float32, (self._parameters,)),
            ("examples", examples, np.int64, (len(examples), examples.shape[-1])),
            ("out", out, np.float32, (filled,)),
        ):
            if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: got {array.dtype} of shape {array.shape} and strides {array.strides}, expected "
                    f"{np.dtype(dtype)} of shape {shape}, without gaps"
                )
        if not hasattr(self._own, "workspace"):
            self._own.workspace = self._network.workspace()
        work = self._client.work
        return work(job, self._network.layout, self._own.workspace, *data, weights, examples, out, *options)

    def _check_model(self, dataset: Dataset) -> None:
        """Refuse a model whose weights or outputs are not those of the network laid out for it."""
        layout = self._network.layout
        laid_out, outputs = len(layout.weight_positions), int(layout.plan[-1]["outputs"])
        if laid_out != self._parameters:
            raise ValueError(
                f"model: it has {self._parameters} weights, but its layers need {laid_out} for examples of shape "
                f"{dataset.x_train.shape[1:]}; give a model that was made for this shape"
            )
        lowest = int(min(dataset.y_train.min(initial=0), dataset.y_test.min(initial=0)))
        if lowest < 0:
            raise ValueError(f"data: label {lowest} is not allowed; allowed: labels of 0 or more")
        highest = int(max(dataset.y_train.max(initial=0), dataset.y_test.max(initial=0)))
        if highest >= outputs:
            raise ValueError(
                f"model: it has {outputs} outputs, but the data has label {highest}; give a model of at least "
                f"{highest + 1} outputs"
            )

    def _check(self, weights: Tensor, examples: Ints, axes: str) -> None:
        """Refuse weights and examples that the compiled code would read beyond."""
        self._check_weights(weights)
        dims, count = axes.count(",") + 1, len(self._train[0])
        if examples.dtype != np.int64 or examples.ndim != dims or len(examples) != len(weights):
            raise ValueError(
                f"examples: got {examples.dtype} of shape {examples.shape}, expected int64 of shape {axes} for "
                f"{len(weights)} models; give a row of positions for each model, -1 for none"
            )
        highest = int(examples.max(initial=-1))
        if highest >= count:
            raise ValueError(
                f"examples: position {highest} is out of range, there are {count} training examples; give positions "
                f"from 0 to {count - 1}, or -1 for none"
            )

    def _check_weights(self, weights: Tensor) -> None:
        parameters = self._parameters
        if weights.dtype != torch.float32 or weights.dim() != 2 or weights.shape[1] != parameters:
            raise ValueError(
                f"weights: got {weights.dtype} of shape {tuple(weights.shape)}, expected torch.float32 of shape "
                f"(models, {parameters}); give a row for each model, as nn.utils.parameters_to_vector makes it"
            )
