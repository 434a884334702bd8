"""A step of training as one launch on a GPU: recorded once as a CUDA graph, then played back.

A step of a few models is over before Python has launched its kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]  # weights (M, d), velocity (M, d), last loss (M,)
Step = Callable[[State, Tensor, Tensor], State]  # from positions (M, batch) and who takes the step (M,)


class RecordedStep:
    """A step for stacks of one shape, with memory of its own; made from what the first step is to be taken from."""

    def __init__(self, step: Step, state: State, positions: Tensor, active: Tensor) -> None:
        self._state = (state[0].clone(), state[1].clone(), state[2].clone())
        self._positions, self._active = positions.clone(), active.clone()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # kernels are compiled and workspaces taken, which cannot be recorded
            for _ in range(2):
                self._take(step)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._take(step)

    def _take(self, step: Step) -> None:
        for old, new in zip(self._state, step(self._state, self._positions, self._active), strict=True):
            old.copy_(new)

    def take(self, state: State, positions: Tensor, active: Tensor) -> State:
        """All steps (M, steps, batch), one after another."""
        for old, new in zip(self._state, state, strict=True):
            old.copy_(new)
        for step in range(positions.shape[1]):
            self._positions.copy_(positions[:, step])
            self._active.copy_(active[:, step])
            self._graph.replay()
        weights, velocity, last_loss = (part.clone() for part in self._state)
        return weights, velocity, last_loss
