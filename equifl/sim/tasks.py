"""Tasks: the loss that training minimises, and the score of each test example.

A task is a value that engines receive. A new one touches no engine's training loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    from torch import Tensor
    from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Task:
    """A loss and a score: functions of outputs (B, ...) and targets (B,) that return one number an example (B,).

    Args:
        name: its name in messages.
        loss: minimised by training.
        score: what evaluation reports; for classification whether the class is right.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=-1) == targets


CLASSIFICATION = Task("classification", loss=partial(cross_entropy, reduction="none"), score=_right)
