"""Whether copies of a module that run as one program do what the module does."""

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
    """What is wrong with `forward` as copies of a module, in words; "" if nothing is.

    Values and slopes are compared, of two sets of weights and some inputs: a hook, `no_grad` or a function with slopes
    of its own leaves no other trace. The inputs are random numbers, and then real `examples`, an even number of them:
    apart, because large numbers would hide what is wrong with small ones. Of integers only the real ones are taken. If
    exact it is in float64, where no rounding error sends a slope elsewhere; else one at a ReLU's zero, which changes
    slopes by a thousandth, is forgiven.

    >>> difference(nn.Linear(2, 1), lambda weights, inputs: inputs.sum(2, keepdim=True) * weights[:, :1, None], (2,))
    'gives other slopes'
    """
    found = ""
    if examples is None or examples.is_floating_point():
        found = _difference(module, forward, lambda draw: torch.randn(2, 3, *shape, generator=draw), exact)
    if examples is not None and not found:
        found = _difference(module, forward, lambda _: examples.reshape(2, -1, *shape), exact)
    return found


def _difference(module: nn.Module, forward: Forward, drawn: Callable[[torch.Generator], Tensor], exact: bool) -> str:
    kind, of_values, of_slopes = (torch.float64, 1e-7, 1e-7) if exact else (torch.float32, 1e-3, 1e-2)
    draw = torch.Generator().manual_seed(0)
    inputs = drawn(draw)
    inputs = inputs.to(kind) if inputs.is_floating_point() else inputs
    try:
        own = copy.deepcopy(module).cpu().to(kind)
        row = torch.cat([weight.detach().flatten() for weight in own.parameters()])
        shift = 0.1 * torch.randn(row.shape, generator=draw)  # so that what is multiplied by 0 at first shows too
        weights = torch.stack([row, row + shift]).requires_grad_(True)
        values, slopes = _one_by_one(own, weights.detach(), inputs)
        found = forward(weights, inputs.clone())
        (its_slopes,) = torch.autograd.grad(found.square().sum(), weights)
        with torch.no_grad():
            again = forward(weights, inputs.clone())
    except Exception as error:  # whatever a module of one's own may raise where it is given what it does not know
        return f"fails ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    least = 1e-3 * float(torch.linalg.norm(slopes.nan_to_num()))
    sizes = [weight.numel() for weight in module.parameters()]
    for right, slope in zip(*(torch.split(part, sizes, dim=1) for part in (slopes, its_slopes)), strict=True):
        if not _close(right, slope, of_slopes, least):
            return "gives other slopes"
    same = _close(values, found.detach(), of_values) and _close(values, again, of_values)
    return "" if same else "gives other values"


def _one_by_one(module: nn.Module, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits by the module itself, with these weights put into it, and slopes of the sum of their squares."""
    values, slopes = [], []
    for row, x in zip(weights, inputs.clone(), strict=True):
        nn.utils.vector_to_parameters(row, module.parameters())
        logits = module(x)
        each = list(module.parameters())
        parts = torch.autograd.grad(logits.square().sum(), each, allow_unused=True, materialize_grads=True)
        values.append(logits.detach())
        slopes.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(values), torch.stack(slopes)


def _close(right: Tensor, found: Tensor, share: float, least: float = 0.0) -> bool:
    """Whether they differ by no more than a share of the right one, or of `least`; where numbers are finite."""
    known = right.isfinite()
    if right.shape != found.shape or not torch.equal(known, found.isfinite()):
        return False
    size = max(float(torch.linalg.norm(right[known])), least)
    return float(torch.linalg.norm(right[known] - found[known])) <= share * size
