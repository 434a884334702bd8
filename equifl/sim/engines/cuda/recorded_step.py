"""A step of training as one launch on a GPU: recorded once as a CUDA graph, then replayed.

A step of a few models is over before Python has launched its kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, Tensor, Tensor]  # weights (M, d), velocity (M, d), last loss (M,)
# A step, given positions (M, batch), which models take it (M,), and the learning rate.
Step = Callable[..., State]


class RecordedStep:
    """A step for stacks of one shape, with memory of its own; recorded with copies of its first arguments.

    Whatever may differ between two rounds is in that memory, the learning rate among it: a number would be recorded.
    """

    def __init__(self, step: Step, state: State, positions: Tensor, active: Tensor) -> None:
        self._state = (state[0].clone(), state[1].clone(), state[2].clone())
        self._positions, self._active = positions.clone(), active.clone()
        self._lr = torch.zeros((), device=positions.device)
        warm_up = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):  # compiles kernels and takes workspaces, which cannot be recorded
            for _ in range(2):
                self._take(step)
        torch.cuda.current_stream().wait_stream(warm_up)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._take(step)

    def _take(self, step: Step) -> None:
        for old, new in zip(self._state, step(self._state, self._positions, self._active, self._lr), strict=True):
            old.copy_(new)

    def take(self, state: State, positions: Tensor, active: Tensor, lr: float) -> State:
        """The state after all steps (M, steps, batch), one after another."""
        for old, new in zip(self._state, state, strict=True):
            old.copy_(new)
        self._lr.fill_(lr)
        for step in range(positions.shape[1]):
            self._positions.copy_(positions[:, step])
            self._active.copy_(active[:, step])
            self._graph.replay()
        weights, velocity, last_loss = (part.clone() for part in self._state)
        return weights, velocity, last_loss
