"""Any module by PyTorch: local training, losses, gradients and evaluation of a stack of models at once.

Row m of a weight matrix is one model. The rows are independent, so the gradient of the sum of their losses
is the gradient of each, and one program trains them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from equifl._numerics.checks import require
from equifl._numerics.threads import cores
from equifl.signals import Bools, Floats, Ints
from equifl.sim.engines.base import Job, Trained
from equifl.sim.engines.cuda.recorded_step import RecordedStep, State, Step
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.torch.transfers import to_device

Part = TypeVar("Part")

_FEW = 512  # models: up to this many a GPU trains faster than Python launches the kernels
_KEPT = 4  # recorded steps, each with memory of its own


class TorchEngine:
    """Runs stacks of models on one device.

    On a CPU the stack is split into small parts that run in parallel, one thread each. They fit the caches, and none
    has rows of two runs, so that the results depend neither on the number of cores nor on other runs. PyTorch's own
    threads are turned off in this process. On a GPU, TF32 is turned off, which PyTorch allows for convolutions by
    default: with its three digits a GPU would give other rounds than a CPU. Training may allow it; losses, gradients,
    distances and evaluation never use it.

    Args:
        job: the model, data, device and task; the arrays are transferred to the device once.
        budget: input numbers (or outputs of sequences) processed at a time, which bounds the memory (default 2^17 on a
            CPU: five LeNets with a batch of 32 each; 2^26 on a GPU).
    """

    name: ClassVar[str] = "torch"
    packages: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def supports(cls, job: Job) -> str:
        """Always "": it supports every job."""
        return ""

    def __init__(self, job: Job, *, budget: int | None = None) -> None:
        dataset = job.dataset
        self.model, self.task = job.model, job.task
        self.device = torch.device(job.device)
        on_gpu = self.device.type == "cuda"
        self._budget = budget or (2**26 if on_gpu else 2**17)
        self._evaluated = self._budget * (1 if on_gpu else 8)  # without gradients a CPU's caches hold more
        self._example = dataset.x_train[0].size
        if (
            dataset.y_train.ndim > 1
        ):  # a class at every position, or several numbers: there is more to hold than inputs
            self._example = max(self._example, dataset.y_train[0].size * (dataset.classes or 1))
        self._steps: dict[Hashable, RecordedStep | None] = {}
        self._kept, self._least = _KEPT, 5
        self._pool = None if on_gpu else ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,))
        if on_gpu:
            _allow_tf32(False)
        else:
            torch.set_num_threads(1)
        self.x_train, self.x_test = (torch.from_numpy(x).to(self.device) for x in (dataset.x_train, dataset.x_test))
        self.y_train, self.y_test = (torch.from_numpy(y).to(self.device) for y in (dataset.y_train, dataset.y_test))

    def limit_memory(self, bytes: int, *, models: int, batch: int) -> None:
        """Process parts small enough for this many bytes of GPU memory, including what is allocated already.

        The memory of a part is measured. For each of the `models` trained at a time a few copies are counted.
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
        require("memory_limit", bytes, bytes >= least, f"{least} or more here, or fewer runs, or a sketch")
        budget = (bytes - taken) * few * batch * self._example // (2 * part)  # half of it may be unused
        self._budget, self._evaluated = min(self._budget, budget), min(self._evaluated, budget)
        self._kept, self._least = 0, 1

    def train(
        self,
        weights: Tensor,
        batches: Ints,
        local: LocalTraining,
        runs: Ints | None = None,
        seeds: Ints | None = None,
    ) -> Trained:
        with _tf32(local.tf32 and self.device.type == "cuda"):
            parts = self._in_parallel(
                lambda rows: self._train(
                    weights[rows], self._own(batches[rows]), local, None if seeds is None else seeds[rows]
                ),
                self._parts(runs, len(weights), batches.shape[2]),
            )
        return Trained(
            torch.cat([part.weights for part in parts]),
            torch.cat([part.last_loss for part in parts]),
            torch.cat([part.steps for part in parts]),
        )

    def _train(self, weights: Tensor, batches: Ints, local: LocalTraining, seeds: Ints | None) -> Trained:
        taken: Bools = np.any(batches >= 0, axis=2)  # (M, steps)
        positions, active = to_device(batches, self.device), to_device(taken, self.device)
        drawn = to_device(seeds, self.device) if seeds is not None and self.model.dropout else None
        step: Step = partial(self._step, local, bool(taken.all()))
        state = weights, torch.zeros_like(weights), torch.zeros(len(weights), device=self.device)
        recorded = None
        # A recorded step would repeat its first seeds and its first w_k, and the branches that a user's loss took.
        if drawn is None and not local.prox and self.task.recordable:
            kind = replace(local, lr=0.0), bool(taken.all())
            recorded = self._recorded(step, state, positions, active, kind)
        if recorded is not None:
            state = recorded.take(state, positions, active, local.lr)
        else:
            received = weights if local.prox else None
            for i in range(positions.shape[1]):
                mine = None if drawn is None else drawn + i
                state = step(state, positions[:, i], active[:, i], local.lr, received=received, seeds=mine)
        return Trained(state[0], state[2], active.sum(dim=1))

    def _step(
        self,
        local: LocalTraining,
        by_all: bool,
        state: State,
        positions: Tensor,
        active: Tensor,
        lr: float | Tensor,
        *,
        received: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> State:
        """One step of SGD, of all models or of the active ones; not with `local.lr`, which a graph would keep."""
        weights, velocity, last_loss = state
        loss, change = self._gradient(weights, positions, seeds)
        if received is not None:
            change = change + local.prox * (weights - received)
        if local.weight_decay:
            change = change + local.weight_decay * weights
        if local.momentum:
            velocity = change = local.momentum * velocity + change
        if not by_all:
            change, loss = change * active.unsqueeze(1), torch.where(active, loss, last_loss)
        return weights - lr * change, velocity, loss

    def _recorded(
        self, step: Step, state: State, positions: Tensor, active: Tensor, kind: Hashable
    ) -> RecordedStep | None:
        """The step as one CUDA graph, for few models on a GPU whose shape occurred before; else None."""
        if self.device.type == "cpu" or len(positions) > _FEW or not self.model.layers:
            return None
        key = (kind, positions.shape[0], positions.shape[2])
        seen, recorded = key in self._steps, self._steps.pop(key, None)
        if seen and recorded is None:
            recorded = RecordedStep(step, state, positions[:, 0], active[:, 0])
        self._steps[key] = recorded  # last, so that the least recently used are dropped
        while len(self._steps) > self._kept:
            self._steps.pop(next(iter(self._steps)))
        return self._steps.get(key)

    def losses(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> Tensor:
        return self._over_examples(weights, examples, runs, gradients=False)[0]

    def gradients(self, weights: Tensor, examples: Ints, runs: Ints | None = None) -> tuple[Tensor, Tensor]:
        return self._over_examples(weights, examples, runs, gradients=True)

    def _over_examples(
        self, weights: Tensor, examples: Ints, runs: Ints | None, *, gradients: bool
    ) -> tuple[Tensor, Tensor]:
        losses = torch.zeros(len(weights), device=self.device)
        total = torch.zeros(weights.shape if gradients else (0, 0), device=self.device)

        def work(rows: slice) -> None:
            """Some examples at a time, each part weighted by its share of the model's examples."""
            mine = self._own(examples[rows])
            count = to_device((mine >= 0).sum(axis=1), self.device)
            for columns in _chunks(mine.shape[1], self._width(rows)):
                positions = to_device(mine[:, columns], self.device)
                share = (positions >= 0).sum(dim=1) / count
                if gradients:
                    loss, gradient = self._gradient(weights[rows], positions)
                    total[rows] += share.unsqueeze(1) * gradient
                else:
                    with torch.no_grad():
                        loss = self._losses(weights[rows], positions)
                losses[rows] += share * loss

        self._in_parallel(work, self._parts(runs, len(weights)))
        return losses, total

    def _losses(self, weights: Tensor, positions: Tensor, seeds: Tensor | None = None) -> Tensor:
        """(M,) mean loss of each row of `weights` over its positions (M, B); 0 if it has none."""
        there = positions >= 0
        examples = positions.clamp(min=0)
        outputs = self.model.forward(weights, self.x_train[examples], *([] if seeds is None else [seeds]))
        each = self.task.loss(outputs.flatten(0, 1), self.y_train[examples].flatten(0, 1)).view_as(there)
        return (each * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)

    def _gradient(self, weights: Tensor, positions: Tensor, seeds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        weights = weights.detach().requires_grad_(True)
        losses = self._losses(weights, positions, seeds)
        (gradient,) = torch.autograd.grad(losses.sum(), weights)
        return losses.detach(), gradient

    def scores(self, weights: Tensor) -> Floats:
        found = torch.empty((len(weights), len(self.y_test)), device=self.device)

        @torch.no_grad()
        def work(rows: slice) -> None:
            for columns in _chunks(len(self.y_test), self._width(rows)):
                inputs = self.x_test[columns].unsqueeze(0).expand(rows.stop - rows.start, *[-1] * self.x_test.dim())
                outputs = self.model.forward(weights[rows], inputs).flatten(0, 1)
                targets = self.y_test[columns].repeat(rows.stop - rows.start, *[1] * (self.y_test.dim() - 1))
                found[rows, columns] = self.task.score(outputs, targets).float().view(rows.stop - rows.start, -1)

        self._in_parallel(work, self._parts(np.arange(len(weights)), len(weights)))
        return found.cpu().numpy()

    def _width(self, rows: slice) -> int:
        """How many examples of each of these models are evaluated at a time."""
        return max(1, self._evaluated // (self._example * (rows.stop - rows.start)))

    def _parts(self, runs: Ints | None, models: int, batch: int = 32) -> Iterator[slice]:
        """Rows that are processed at a time: on a CPU of one run."""
        size = max(self._least, self._budget // (self._example * batch))
        if self._pool is None or runs is None:
            yield from _chunks(models, size)
            return
        ends = [*(np.flatnonzero(np.diff(runs)) + 1).tolist(), models]
        for start, end in pairwise([0, *ends]):
            yield from (slice(start + part.start, start + part.stop) for part in _chunks(end - start, size))

    def _own(self, positions: Ints) -> Ints:
        """Without the columns at the end that only other runs need; on a GPU as it is."""
        if self._pool is None or not positions.size:
            return positions
        there = positions >= 0
        for axis in range(1, positions.ndim):
            used = there.any(axis=tuple(other for other in range(positions.ndim) if other != axis))
            positions = positions.take(range(int(np.flatnonzero(used).max(initial=0)) + 1), axis=axis)
        return positions

    def _in_parallel(self, work: Callable[[slice], Part], parts: Iterable[slice]) -> list[Part]:
        return list(map(work, parts) if self._pool is None else self._pool.map(work, parts))


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Allow TF32 matrix products on a GPU within the block, if `allowed`."""
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
