"""What is learnt: the loss that training lowers, and the score by which each test example is judged.

A task is a value that engines are given. A new one touches no engine's training loop.
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
    """Both functions take the model's outputs (B, ...) and the targets (B,), and give one number an example (B,).

    Args:
        name: what engines and messages call it.
        loss: what training lowers.
        score: what evaluation reports; for classification whether the class is right.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(dim=-1) == targets


CLASSIFICATION = Task("classification", loss=partial(cross_entropy, reduction="none"), score=_right)
