"""A simple reference implementation: one client after another, one `nn.Module`, PyTorch's own optimiser.

Tests compare the engines with it, and the benchmark measures against it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from equifl.signals import Bools, Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.local_training import LocalTraining


class Reference:
    """What `Engine` does, for one row of weights at a time, in the precision of the module."""

    def __init__(self, module: nn.Module, dataset: Dataset) -> None:
        self.module = module
        self._dtype = next(module.parameters()).dtype
        given = (torch.from_numpy(x) for x in (dataset.x_train, dataset.x_test))
        self.x_train, self.x_test = (x.to(self._dtype) if x.is_floating_point() else x for x in given)
        self.y_train, self.y_test = torch.from_numpy(dataset.y_train), torch.from_numpy(dataset.y_test)

    def train(self, weights: Tensor, examples: Ints, local: LocalTraining) -> tuple[Tensor, float, int]:
        """Local SGD of one client on its batches (steps, batch): weights, loss of the last batch, steps taken."""
        self._load(weights)
        optimizer = torch.optim.SGD(
            self.module.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
        )
        last_loss, steps = 0.0, 0
        for batch in examples:
            mine = torch.from_numpy(batch[batch >= 0])
            if not len(mine):
                continue
            optimizer.zero_grad()
            loss = cross_entropy(self.module(self.x_train[mine]), self.y_train[mine])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            last_loss, steps = float(loss.detach()), steps + 1
        return parameters_to_vector(self.module.parameters()).detach().clone(), last_loss, steps

    def gradient(self, weights: Tensor, examples: Ints) -> tuple[float, Tensor]:
        """Loss and gradient of one client over all its examples."""
        self._load(weights)
        mine = torch.from_numpy(examples[examples >= 0])
        self.module.zero_grad()
        loss = cross_entropy(self.module(self.x_train[mine]), self.y_train[mine])
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), torch.cat(
            [p.grad.flatten() for p in self.module.parameters() if p.grad is not None]
        )

    def _load(self, weights: Tensor) -> None:
        vector_to_parameters(weights.to(self._dtype, copy=True), self.module.parameters())

    @torch.no_grad()
    def scores(self, weights: Tensor) -> Bools:
        """(test examples,) which ones a model classifies correctly."""
        self._load(weights)
        return (self.module(self.x_test).argmax(dim=1) == self.y_test).numpy()
