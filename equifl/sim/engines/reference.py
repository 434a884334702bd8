"""A simple reference implementation: one client after another, one `nn.Module`, PyTorch's own optimiser.

Tests compare the engines with it, and the benchmark measures against it.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.models.dropout import seed_dropout
from equifl.sim.models.trained_weights import as_row, trained
from equifl.sim.tasks import CLASSIFICATION, Task


class Reference:
    """What `Engine` does, for one row of weights at a time, in the precision of the module."""

    def __init__(self, module: nn.Module, dataset: Dataset, task: Task = CLASSIFICATION) -> None:
        self.module, self.task = module, task
        self._dtype = next(module.parameters()).dtype
        self.x_train, self.y_train, self.x_test, self.y_test = map(
            self._tensor, (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        given = torch.from_numpy(array)
        return given.to(self._dtype) if given.is_floating_point() else given

    def train(
        self, weights: Tensor, examples: Ints, local: LocalTraining, seed: int | None = None
    ) -> tuple[Tensor, float, int]:
        """Local SGD of one client on its batches (steps, batch): weights, loss of the last batch, steps taken."""
        self._load(weights)
        own = list(trained(self.module).values())
        received = [weight.detach().clone() for weight in own]
        optimizer = torch.optim.SGD(own, lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay)
        last_loss, steps = 0.0, 0
        for number, batch in enumerate(examples):
            if not (batch >= 0).any():
                continue
            optimizer.zero_grad()
            seed_dropout(self.module, None if seed is None else torch.tensor(seed + number))
            loss = self._loss(batch)
            term = sum((w - w_k).square().sum() for w, w_k in zip(own, received, strict=True))
            (loss + local.prox / 2 * term).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            last_loss, steps = float(loss.detach()), steps + 1
        seed_dropout(self.module, None)
        return as_row(self.module).clone(), last_loss, steps

    def gradient(self, weights: Tensor, examples: Ints) -> tuple[float, Tensor]:
        """Loss and gradient of one client over all its examples."""
        self._load(weights)
        self.module.zero_grad()
        loss = self._loss(examples)
        loss.backward()  # type: ignore[no-untyped-call]
        each = [weight.grad for weight in trained(self.module).values()]
        return float(loss.detach()), torch.cat([gradient.flatten() for gradient in each if gradient is not None])

    def _loss(self, examples: Ints) -> Tensor:
        mine = torch.from_numpy(examples[examples >= 0])
        return self.task.loss(self.module(self.x_train[mine]), self.y_train[mine]).mean()

    def _load(self, weights: Tensor) -> None:
        vector_to_parameters(weights.to(self._dtype, copy=True), trained(self.module).values())

    @torch.no_grad()
    def scores(self, weights: Tensor) -> NDArray[Any]:
        """(test examples,) the task's score of a model on each."""
        self._load(weights)
        return self.task.score(self.module(self.x_test), self.y_test).numpy()
