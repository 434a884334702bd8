"""Many clients, one tensor: local training, losses, gradients and evaluation of a stack of models at once.

Row m of a weight matrix is one model. The rows are independent, so the gradient of the sum of their losses
is the gradient of each, and one program trains them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from equifl._numerics.checks import require
from equifl._numerics.threads import cores
from equifl.signals import Bools, Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.cuda.recorded_step import RecordedStep, State, Step
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.engines.torch.transfers import to_device

Part = TypeVar("Part")

_FEW = 512  # models that a GPU trains faster than Python launches their kernels
_KEPT = 4  # recorded steps, each with memory of its own


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Local training by SGD: for `steps` batches, or for `epochs` passes over the client's data.

    With `tf32`, products on a GPU may be of three digits.

    >>> Sgd(lr=0.1, batch_size=4, epochs=1).batches(6, np.random.default_rng(0)).shape
    (2, 4)
    """

    lr: float
    batch_size: int = 32
    steps: int | None = None
    epochs: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    tf32: bool = False

    def batches(self, examples: int, rng: np.random.Generator) -> Ints:
        """(steps, batch_size) positions among a client's examples, each pass in a new order; -1 = no example."""
        size = min(self.batch_size, examples)
        if self.epochs is not None:  # the last batch of a pass may be smaller
            order = np.full((self.epochs, -(-examples // size) * size), -1)
            order[:, :examples] = [rng.permutation(examples) for _ in range(self.epochs)]
        else:  # or is left out, so that no batch has an example twice
            steps, whole = self.steps or 1, examples // size * size
            passes = [rng.permutation(examples)[:whole] for _ in range(-(-steps * size // whole))]
            order = np.concatenate(passes)[: steps * size]
        batches = np.full((order.size // size, self.batch_size), -1)
        batches[:, :size] = order.reshape(-1, size)
        return batches


@dataclass(frozen=True)
class Trained:
    """What comes back from local training, one row a model."""

    weights: Tensor  # (M, d)
    last_loss: Tensor  # (M,) on the batch of the last step, before that step
    steps: Tensor  # (M,) how many each took


class Engine:
    """Runs stacks of models on one device.

    On a CPU the stack is cut into small parts that run side by side, one thread each: small enough for the caches,
    and of a size that does not depend on the number of cores, so that neither do the results. PyTorch's own
    threads would come on top, so this process's are turned off. On a GPU it is TF32 that is turned off, which PyTorch
    allows for convolutions unless told otherwise: with three digits a GPU would not play the rounds of a CPU. Training
    may ask for it; what is asked for besides, distances and evaluation never have it.

    Args:
        model: the architecture.
        dataset: its arrays go to the device once; clients are positions in them.
        device: "cpu" or "cuda".
        budget: how many input numbers one program takes at a time, which bounds its memory (default 2^17 on a CPU:
            five LeNets with a batch of 32 each; 2^26 on a GPU).
        note: why it is not the fast engine, if that was asked for.
    """

    def __init__(
        self,
        model: StackedModel,
        dataset: Dataset,
        device: str,
        *,
        budget: int | None = None,
        note: str = "",
    ) -> None:
        self.model, self.name, self.note = model, "general", note
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        self._budget = budget or (2**26 if on_gpu else 2**17)
        self._evaluated = self._budget * (1 if on_gpu else 8)  # without gradients a CPU's caches hold more
        self._example = dataset.x_train[0].size
        self._steps: dict[Hashable, RecordedStep | None] = {}
        self._kept, self._least = _KEPT, 5
        self._pool = None if on_gpu else ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,))
        if on_gpu:
            _allow_tf32(False)
        else:
            torch.set_num_threads(1)
        self.x_train, self.x_test = (torch.from_numpy(x).to(self.device) for x in (dataset.x_train, dataset.x_test))
        self.y_train, self.y_test = (torch.from_numpy(y).to(self.device) for y in (dataset.y_train, dataset.y_test))

    def stay_within(self, memory_limit: int, *, models: int, batch: int) -> None:
        """Work in parts that are small enough for so many bytes of a GPU, of which some are taken already.

        What a part takes is tried out. Of each of the `models` that are trained at a time there are a few copies.
        """
        if self.device.type == "cpu":  # where parts are small anyway
            return
        taken = torch.cuda.memory_allocated() + 8 * 4 * models * self.model.parameters
        few = 8
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        weights = torch.zeros(few, self.model.parameters, device=self.device)
        self._gradient(weights, torch.zeros(few, batch, dtype=torch.int64, device=self.device))
        part = torch.cuda.max_memory_allocated() - before
        least = taken + 2 * part
        require(
            "memory_limit", memory_limit, memory_limit >= least, f"{least} or more here, or fewer lanes, or a sketch"
        )
        budget = (memory_limit - taken) * few * batch * self._example // (2 * part)  # half of it may lie idle
        self._budget, self._evaluated = min(self._budget, budget), min(self._evaluated, budget)
        self._kept, self._least = 0, 1

    def train(self, weights: Tensor, examples: Ints, sgd: Sgd) -> Trained:
        """Local SGD of every row of `weights` (M, d) on its own batches.

        `examples` (M, steps, batch) are positions in the training data; -1 = no example. A step without any is
        not taken, so that clients may differ in how many steps they make.
        """
        with _tf32(sgd.tf32 and self.device.type == "cuda"):
            parts = self._side_by_side(
                lambda rows: self._train(weights[rows], examples[rows], sgd), len(weights), examples.shape[2]
            )
        return Trained(
            torch.cat([part.weights for part in parts]),
            torch.cat([part.last_loss for part in parts]),
            torch.cat([part.steps for part in parts]),
        )

    def _train(self, weights: Tensor, examples: Ints, sgd: Sgd) -> Trained:
        taken: Bools = np.any(examples >= 0, axis=2)  # (M, steps)
        positions, active = to_device(examples, self.device), to_device(taken, self.device)
        step: Step = partial(self._step, sgd, bool(taken.all()))
        state = weights, torch.zeros_like(weights), torch.zeros(len(weights), device=self.device)
        recorded = self._recorded(step, state, positions, active, (sgd, bool(taken.all())))
        if recorded is not None:
            state = recorded.take(state, positions, active)
        else:
            for i in range(positions.shape[1]):
                state = step(state, positions[:, i], active[:, i])
        return Trained(state[0], state[2], active.sum(dim=1))

    def _step(self, sgd: Sgd, by_all: bool, state: State, positions: Tensor, active: Tensor) -> State:
        """One step of SGD, taken by all or by those who are active."""
        weights, velocity, last_loss = state
        loss, change = self._gradient(weights, positions)
        if sgd.weight_decay:
            change = change + sgd.weight_decay * weights
        if sgd.momentum:
            velocity = change = sgd.momentum * velocity + change
        if not by_all:
            change, loss = change * active.unsqueeze(1), torch.where(active, loss, last_loss)
        return weights - sgd.lr * change, velocity, loss

    def _recorded(
        self, step: Step, state: State, positions: Tensor, active: Tensor, kind: Hashable
    ) -> RecordedStep | None:
        """The step as one launch, for few models on a GPU, whose shape was seen before: recording takes time too."""
        if self.device.type == "cpu" or len(positions) > _FEW or not self.model.layers:
            return None
        key = (kind, positions.shape[0], positions.shape[2])
        seen, recorded = key in self._steps, self._steps.pop(key, None)
        if seen and recorded is None:
            recorded = RecordedStep(step, state, positions[:, 0], active[:, 0])
        self._steps[key] = recorded  # as the last, so that those go which were not used for longest
        while len(self._steps) > self._kept:
            self._steps.pop(next(iter(self._steps)))
        return self._steps.get(key)

    def losses(self, weights: Tensor, examples: Ints) -> Tensor:
        """(M,) loss of each row of `weights` over its own examples (M, n) of the training data; -1 = no example."""
        return self._over_examples(weights, examples, gradients=False)[0]

    def gradients(self, weights: Tensor, examples: Ints) -> tuple[Tensor, Tensor]:
        """The same, and (M, d) its gradient."""
        return self._over_examples(weights, examples, gradients=True)

    def _over_examples(self, weights: Tensor, examples: Ints, *, gradients: bool) -> tuple[Tensor, Tensor]:
        losses = torch.zeros(len(weights), device=self.device)
        total = torch.zeros(weights.shape if gradients else (0, 0), device=self.device)

        def work(rows: slice) -> None:
            """Some examples at a time, each part weighted by its share of the model's examples."""
            count = to_device((examples[rows] >= 0).sum(axis=1), self.device)
            for columns in _chunks(examples.shape[1], self._width(rows)):
                positions = to_device(examples[rows, columns], self.device)
                share = (positions >= 0).sum(dim=1) / count
                if gradients:
                    loss, gradient = self._gradient(weights[rows], positions)
                    total[rows] += share.unsqueeze(1) * gradient
                else:
                    with torch.no_grad():
                        loss = self._losses(weights[rows], positions)
                losses[rows] += share * loss

        self._side_by_side(work, len(weights))
        return losses, total

    def _losses(self, weights: Tensor, positions: Tensor) -> Tensor:
        """(M,) mean loss of each row of `weights` over its positions (M, B); 0 if it has none."""
        there = positions >= 0
        examples = positions.clamp(min=0)
        logits = self.model.forward(weights, self.x_train[examples])
        each = cross_entropy(logits.flatten(0, 1), self.y_train[examples].flatten(), reduction="none").view_as(there)
        return (each * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)

    def _gradient(self, weights: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.detach().requires_grad_(True)
        losses = self._losses(weights, positions)
        (gradient,) = torch.autograd.grad(losses.sum(), weights)
        return losses.detach(), gradient

    def correct(self, weights: Tensor) -> Bools:
        """(M, test examples) whether each model classifies each test example rightly."""
        found = torch.empty((len(weights), len(self.y_test)), dtype=torch.bool, device=self.device)

        @torch.no_grad()
        def work(rows: slice) -> None:
            for columns in _chunks(len(self.y_test), self._width(rows)):
                inputs = self.x_test[columns].unsqueeze(0).expand(rows.stop - rows.start, *[-1] * self.x_test.dim())
                found[rows, columns] = self.model.forward(weights[rows], inputs).argmax(dim=2) == self.y_test[columns]

        self._side_by_side(work, len(weights))
        return found.cpu().numpy()

    def _width(self, rows: slice) -> int:
        """How many examples of each of these models are evaluated at a time."""
        return max(1, self._evaluated // (self._example * (rows.stop - rows.start)))

    def _side_by_side(self, work: Callable[[slice], Part], models: int, batch: int = 32) -> list[Part]:
        parts = _chunks(models, max(self._least, self._budget // (self._example * batch)))
        return list(map(work, parts) if self._pool is None else self._pool.map(work, parts))


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """If allowed, products on a GPU are of three digits for so long."""
    if allowed:
        _allow_tf32(True)
    try:
        yield
    finally:
        if allowed:
            _allow_tf32(False)


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def _chunks(length: int, size: int) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
