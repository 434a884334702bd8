"""Check that the stacked form of a module has the module's outputs and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from equifl.sim.models.dropout import has_dropout, seed_dropout
from equifl.sim.models.trained_weights import as_row, trained
from equifl.sim.models.zoo import Shape

# Weights (M, d) and inputs (M, B, ...) to outputs (M, B, ...); of a model with dropout also seeds (M,), or none.
Forward: TypeAlias = Callable[..., Tensor]


def difference(
    module: nn.Module, forward: Forward, shape: Shape, examples: Tensor | None = None, *, exact: bool = False
) -> str:
    """How `forward` differs from the module, in words; "" if its outputs and gradients match.

    They are compared for two sets of weights and some inputs: hooks, `no_grad` and functions with their own gradient
    cannot be found otherwise. The inputs are random numbers, and then real `examples`, an even number of them. The two
    are compared separately, because large numbers would hide errors in small ones. Integer data are compared on real
    examples only. `exact` compares in float64 with a small tolerance; otherwise the tolerance allows for rounding at a
    ReLU's zero, which changes gradients by a thousandth. With dropout they are compared without and with seeds.

    >>> difference(nn.Linear(2, 1), lambda weights, inputs: inputs.sum(2, keepdim=True) * weights[:, :1, None], (2,))
    'gives other gradients'
    """
    drawn: list[Callable[[torch.Generator], Tensor]] = []
    if examples is None or examples.is_floating_point():
        drawn.append(lambda draw: torch.randn(2, 3, *shape, generator=draw))
    if examples is not None:
        drawn.append(lambda _: examples.reshape(2, -1, *shape))
    seeds = [None, torch.tensor([1, 2])] if has_dropout(module) else [None]
    found = (_difference(module, forward, inputs, exact, seed) for inputs in drawn for seed in seeds)
    return next(filter(None, found), "")


def _difference(
    module: nn.Module,
    forward: Forward,
    drawn: Callable[[torch.Generator], Tensor],
    exact: bool,
    seeds: Tensor | None,
) -> str:
    kind, of_values, of_gradients = (torch.float64, 1e-7, 1e-7) if exact else (torch.float32, 1e-3, 1e-2)
    draw = torch.Generator().manual_seed(0)
    inputs = drawn(draw)
    inputs = inputs.to(kind) if inputs.is_floating_point() else inputs
    try:
        own = copy.deepcopy(module).cpu().to(kind)
        row = as_row(own)
        shift = 0.1 * torch.randn(row.shape, generator=draw)  # so that weights that start at 0 are tested too
        weights = torch.stack([row, row + shift]).requires_grad_(True)
        values, gradients = _one_by_one(own, weights.detach(), inputs, seeds)
        given = [] if seeds is None else [seeds]
        found = forward(weights, inputs.clone(), *given)
        (its_gradients,) = torch.autograd.grad(found.square().sum(), weights)
        with torch.no_grad():
            again = forward(weights, inputs.clone(), *given)
    except Exception as error:  # a user's module may raise anything
        return f"fails ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    least = 1e-3 * float(torch.linalg.norm(gradients.nan_to_num()))
    sizes = [weight.numel() for weight in trained(module).values()]
    for right, gradient in zip(*(torch.split(part, sizes, dim=1) for part in (gradients, its_gradients)), strict=True):
        if not _close(right, gradient, of_gradients, least):
            return "gives other gradients"
    same = _close(values, found.detach(), of_values) and _close(values, again, of_values)
    return "" if same else "gives other outputs"


def _one_by_one(module: nn.Module, weights: Tensor, inputs: Tensor, seeds: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits by the module itself, with these weights, and gradients of the sum of their squares."""
    values, gradients = [], []
    for m, (row, x) in enumerate(zip(weights, inputs.clone(), strict=True)):
        each = list(trained(module).values())
        nn.utils.vector_to_parameters(row, each)
        seed_dropout(module, None if seeds is None else seeds[m])
        logits = module(x)
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
