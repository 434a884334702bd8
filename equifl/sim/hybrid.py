"""Any module on a CPU, with its max-pooling, and the convolutions that PyTorch is slow at, by the fast engine's loops.

In a plain chain of layers all convolutions are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from equifl.sim.difference import Forward, difference
from equifl.sim.intercepted import FEW, OurLoops, convolution, pooling
from equifl.sim.models import Shape
from equifl.sim.operations import Operation
from equifl.sim.stacked import StackedModel, mapped, multiply, split

_NOTHING = f"the model has no plain convolution of fewer than {FEW} channels and no plain max-pooling"


def hybrid(model: StackedModel, shape: Shape, examples: Tensor | None = None) -> tuple[StackedModel | None, str]:
    """The same model with our loops in it; or none, and why.

    Args:
        model: by PyTorch alone.
        shape: of one example.
        examples: of the data, on which it is tried out too.
    """
    if model.layers:
        steps = _steps(model.layers)
        ours = any(isinstance(step, Operation) for step in steps)
        return (replace(model, forward=_layered(model.module, steps)), "") if ours else (None, _NOTHING)
    why = ""
    for together, patient in itertools.product((True, False), repeat=2):
        seen: set[str] = set()
        within = partial(OurLoops, together=together, patient=patient, seen=seen)
        forward = mapped(model.module, together=together, within=within)
        why = difference(model.module, forward, shape, examples)
        if not why and "ours" not in seen:
            return None, _NOTHING
        if not why and not (together and seen & {"theirs", "large"}):
            return replace(model, forward=forward), ""
    return None, f"with our loops in it, the model {why}"


def _steps(layers: Iterable[nn.Module]) -> list[Operation | nn.Module]:
    """A convolution, pooling after it and ReLU after that are one operation; other layers are what they are."""
    steps: list[Operation | nn.Module] = []
    for layer in layers:
        last, ours = steps[-1] if steps else None, None
        if isinstance(layer, nn.Conv2d):
            ours = convolution(layer.weight.shape, layer.stride, layer.padding)
        elif isinstance(layer, nn.MaxPool2d):
            ours = pooling(layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
            both = ours.after(last) if ours and isinstance(last, Operation) else None
            if both:
                ours = both
                steps.pop()
        elif isinstance(layer, nn.ReLU) and isinstance(last, Operation):
            ours = replace(last, relu=True)
            steps.pop()
        steps.append(ours or layer)
    return steps


def _layered(module: nn.Module, steps: list[Operation | nn.Module]) -> Forward:
    """Step by step for all copies at once, on images (M, B, channels, H, W)."""

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        left, x = split(weights, module), inputs
        for step in steps:
            if isinstance(step, Operation):
                x = step(x, left.pop(0), left.pop(0)) if step.kernel else step(x)
            elif isinstance(step, nn.Linear):
                x = multiply(x, left.pop(0), left.pop(0))
            elif isinstance(step, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(step, nn.MaxPool2d):
                x = step(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                x = functional.relu(x)
        return x

    return forward
