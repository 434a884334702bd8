"""What an engine is: whatever trains and evaluates stacks of models, each row of a matrix the weights of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.tasks import CLASSIFICATION, Task


@dataclass(frozen=True)
class Job:
    """What an engine is to work on.

    Args:
        model: the architecture.
        dataset: clients are positions in its arrays.
        device: "cpu" or "cuda".
        task: what is learnt.
    """

    model: StackedModel
    dataset: Dataset
    device: str = "cpu"
    task: Task = CLASSIFICATION


@dataclass(frozen=True)
class Trained:
    """What comes back from local training, one row a model."""

    weights: Tensor  # (M, d)
    last_loss: Tensor  # (M,) on the batch of the last step, before that step
    steps: Tensor  # (M,) how many each took


class Engine(Protocol):
    """The round loop knows engines by these methods alone, so another can be written without touching it.

    `examples` and `batches` are positions in the training data; -1 = no example. What a row gives depends on no other.

    Attributes:
        name: what configurations and records call it.
        device: where weights, losses and gradients are.
    """

    name: str
    device: torch.device

    def __init__(self, job: Job) -> None: ...

    @classmethod
    def supports(cls, job: Job) -> str:
        """Why it cannot do a job here, in words; "" if it can."""
        ...

    def train(self, weights: Tensor, batches: Ints, local: LocalTraining) -> Trained:
        """Local SGD of every row of `weights` (M, d) on its own batches (M, steps, batch).

        A step without any example is not taken, so that clients may differ in how many steps they make.
        """
        ...

    def losses(self, weights: Tensor, examples: Ints) -> Tensor:
        """(M,) loss of each row of `weights` over its own examples (M, n)."""
        ...

    def gradients(self, weights: Tensor, examples: Ints) -> tuple[Tensor, Tensor]:
        """The same, and (M, d) its gradient."""
        ...

    def scores(self, weights: Tensor) -> NDArray[Any]:
        """(M, test examples) the task's score of each model on each test example."""
        ...

    def limit_memory(self, bytes: int, *, models: int, batch: int) -> None:
        """Stay within so many bytes of a GPU's memory while `models` are trained at a time; a CPU takes little."""
        ...
