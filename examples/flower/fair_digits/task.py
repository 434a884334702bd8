"""What is learnt, from what: LeNet, and the digits that come with scikit-learn. Nothing here knows of Flower."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from equifl.sim.data import load_dataset
from equifl.sim.data.partition import split
from equifl.sim.models.zoo import lenet

BATCH = 32
torch.set_num_threads(1)  # a small net gains nothing by more, and clients that share a machine lose by them
Examples = tuple[Tensor, Tensor]


def new_model(seed: int = 0) -> nn.Module:
    """LeNet for images of 8x8."""
    torch.manual_seed(seed)
    return lenet((1, 8, 8), 10)


@lru_cache(maxsize=32)
def examples_of(partition: int, partitions: int) -> tuple[Examples, Examples]:
    """A client's training and test examples, of three digits."""
    digits = load_dataset("digits")
    even = 10 * ceil(partitions / 10)  # so that ten digits come out even
    parts = split("classes", digits, even, classes_per_client=3, rng=np.random.default_rng(0))
    mine, held_out = parts.train[partition], parts.test[partition]
    return (
        (torch.from_numpy(digits.x_train[mine]), torch.from_numpy(digits.y_train[mine])),
        (torch.from_numpy(digits.x_test[held_out]), torch.from_numpy(digits.y_test[held_out])),
    )


def train(model: nn.Module, examples: Examples, *, steps: int, lr: float, rng: np.random.Generator) -> float:
    """Some steps of SGD; returns the loss of the last one."""
    x, y = examples
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loss = torch.tensor(0.0)
    for _ in range(steps):
        batch = torch.from_numpy(rng.choice(len(y), min(BATCH, len(y)), replace=False))
        optimizer.zero_grad()
        loss = cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return loss.item()


def accuracy(model: nn.Module, examples: Examples) -> float:
    """From 0 to 1."""
    x, y = examples
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


def loss_and_gradient(model: nn.Module, examples: Examples) -> tuple[float, list[np.ndarray]]:
    """Of the model as it is, on all examples."""
    x, y = examples
    loss = cross_entropy(model(x), y)
    gradient = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), [part.numpy() for part in gradient]
