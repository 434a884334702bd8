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
