"""Check that the stacked form of a module has the module's outputs and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from equifl.sim.models.zoo import Shape

Forward: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # weights (M, d), inputs (M, B, ...) -> logits (M, B, classes)


def difference(
    module: nn.Module, forward: Forward, shape: Shape, examples: Tensor | None = None, *, exact: bool = False
) -> str:
    """How `forward` differs from the module, in words; "" if its outputs and gradients match.

    They are compared for two sets of weights and some inputs: hooks, `no_grad` and functions with their own gradient
    cannot be found otherwise. The inputs are random numbers, and then real `examples`, an even number of them. The two
    are compared separately, because large numbers would hide errors in small ones. Integer data are compared on real
    examples only. `exact` compares in float64 with a small tolerance; otherwise the tolerance allows for rounding at a
    ReLU's zero, which changes gradients by a thousandth.

    >>> difference(nn.Linear(2, 1), lambda weights, inputs: inputs.sum(2, keepdim=True) * weights[:, :1, None], (2,))
    'gives other gradients'
    """
    found = ""
    if examples is None or examples.is_floating_point():
        found = _difference(module, forward, lambda draw: torch.randn(2, 3, *shape, generator=draw), exact)
    if examples is not None and not found:
        found = _difference(module, forward, lambda _: examples.reshape(2, -1, *shape), exact)
    return found


def _difference(module: nn.Module, forward: Forward, drawn: Callable[[torch.Generator], Tensor], exact: bool) -> str:
    kind, of_values, of_gradients = (torch.float64, 1e-7, 1e-7) if exact else (torch.float32, 1e-3, 1e-2)
    draw = torch.Generator().manual_seed(0)
    inputs = drawn(draw)
    inputs = inputs.to(kind) if inputs.is_floating_point() else inputs
    try:
        own = copy.deepcopy(module).cpu().to(kind)
        row = torch.cat([weight.detach().flatten() for weight in own.parameters()])
        shift = 0.1 * torch.randn(row.shape, generator=draw)  # so that weights that start at 0 are tested too
        weights = torch.stack([row, row + shift]).requires_grad_(True)
        values, gradients = _one_by_one(own, weights.detach(), inputs)
        found = forward(weights, inputs.clone())
        (its_gradients,) = torch.autograd.grad(found.square().sum(), weights)
        with torch.no_grad():
            again = forward(weights, inputs.clone())
    except Exception as error:  # a user's module may raise anything
        return f"fails ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    least = 1e-3 * float(torch.linalg.norm(gradients.nan_to_num()))
    sizes = [weight.numel() for weight in module.parameters()]
    for right, gradient in zip(*(torch.split(part, sizes, dim=1) for part in (gradients, its_gradients)), strict=True):
        if not _close(right, gradient, of_gradients, least):
            return "gives other gradients"
    same = _close(values, found.detach(), of_values) and _close(values, again, of_values)
    return "" if same else "gives other outputs"


def _one_by_one(module: nn.Module, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits by the module itself, with these weights, and gradients of the sum of their squares."""
    values, gradients = [], []
    for row, x in zip(weights, inputs.clone(), strict=True):
        nn.utils.vector_to_parameters(row, module.parameters())
        logits = module(x)
        each = list(module.parameters())
        parts = torch.autograd.grad(logits.square().sum(), each, allow_unused=True, materialize_grads=True)
        values.append(logits.detach())
        gradients.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(values), torch.stack(gradients)


def _close(right: Tensor, found: Tensor, share: float, least: float = 0.0) -> bool:
    """Whether the difference has a norm of at most `share` of the right one's, or of `least`."""
    known = right.isfinite()
    if right.shape != found.shape or not torch.equal(known, found.isfinite()):
        return False
    size = max(float(torch.linalg.norm(right[known])), least)
    return float(torch.linalg.norm(right[known] - found[known])) <= share * size
