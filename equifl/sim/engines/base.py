"""The Engine protocol: training and evaluation of stacks of models, a row of weights each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

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
    """The work of an engine.

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
    """Results of local training, one row a model."""

    weights: Tensor  # (M, d)
    last_loss: Tensor  # (M,) on the batch of the last step, before that step
    steps: Tensor  # (M,) how many each took


class Engine(Protocol):
    """What the round loop needs of an engine; another engine can be added without changing the loop.

    `examples` and `batches` are positions in the training data; -1 = no example. Rows are independent of each other.
    `runs` (M,) says which run each row belongs to; rows of a run follow each other. On a CPU a row's result depends on
    the rows of its run alone, to the last bit. None = all are of one run.

    Attributes:
        name: its name in configurations and records.
        packages: beside PyTorch, what it computes with; their versions are recorded.
        device: where weights, losses and gradients are.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    device: torch.device

    def __init__(self, job: Job) -> None: ...

    @classmethod
    def supports(cls, job: Job) -> str:
        """Why it does not support a job here, in words; "" if it does."""
        ...

    def train(
        self,
        weights: Tensor,
        batches: Ints,
        local: LocalTraining,
        runs: Ints | None = None,
        seeds: Ints | None = None,
    ) -> Trained:
        """Local SGD of every row of `weights` (M, d) on its own batches (M, steps, batch).

        A step without any example is not taken, so that clients may differ in how many steps they make. `seeds` (M,)
        are those of each row's dropout; without them nothing is dropped, as in all that is not training.
        """
        ...

    def losses(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> Tensor:
        """(M,) loss of each row of `weights` over its own examples (M, n)."""
        ...

    def gradients(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> tuple[Tensor, Tensor]:
        """The same, and (M, d) its gradient."""
        ...

    def scores(self, weights: Tensor) -> NDArray[Any]:
        """(M, test examples) the task's score of each model on each test example; each row is a run."""
        ...

    def limit_memory(self, bytes: int, *, models: int, batch: int) -> None:
        """Limit the GPU memory to this many bytes while `models` are trained at a time; no effect on a CPU."""
        ...
