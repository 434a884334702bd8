"""The weights of a module that are trained: those that require a gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that are trained, sent and remembered, by name; frozen ones are part of the architecture.

    >>> module = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1).requires_grad_(False))
    >>> list(trained(module))
    ['0.weight', '0.bias']
    """
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


def as_row(module: nn.Module) -> Tensor:
    """(d,) its trained weights, laid end to end."""
    return torch.cat([weight.detach().flatten() for weight in trained(module).values()])


def output_bias(module: nn.Module, classes: int) -> slice | None:
    """Where the bias of the output layer is among the trained weights, if the last of them is one, a number a class.

    >>> output_bias(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), 2), output_bias(nn.Linear(2, 3, bias=False), 3)
    (slice(15, 17, None), None)
    """
    weights = trained(module)
    name, last = next(reversed(weights.items()), ("", torch.zeros(0)))
    end = sum(weight.numel() for weight in weights.values())
    return slice(end - classes, end) if name.endswith("bias") and last.shape == (classes,) else None
