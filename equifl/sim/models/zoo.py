"""Models by name, and whether a module of the user's own can be trained here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn

from equifl.checks import require

Shape: TypeAlias = tuple[int, ...]


def lenet(shape: Shape, classes: int) -> nn.Module:
    """LeNet: two convolutions with pooling, then 120, 84, classes. 44,426 weights on 28x28, 62,006 on 32x32x3.

    Images too small for two 5x5 convolutions (the 8x8 digits) get 3x3 ones with padding.
    """
    require("train.model", "lenet", len(shape) == 3, f"mlp or logistic for data of shape {shape}; lenet is for images")
    channels, *sides = shape
    kernel, padding = (5, 0) if min(sides) >= 16 else (3, 1)
    for _ in range(2):
        sides = [(side + 2 * padding - kernel + 1) // 2 for side in sides]
    require("train.model", "lenet", min(sides) >= 1, f"mlp or logistic for images of {shape[1]}x{shape[2]}")
    return nn.Sequential(
        nn.Conv2d(channels, 6, kernel, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * sides[0] * sides[1], 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def mlp(shape: Shape, classes: int, hidden: int = 64) -> nn.Module:
    """One hidden layer."""
    inputs = torch.Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes))


MODELS: Mapping[str, Callable[..., nn.Module]] = {"lenet": lenet, "mlp": mlp, "logistic": logistic}


def make_module(name: str, shape: Shape, classes: int, options: Mapping[str, Any]) -> nn.Module:
    """The model of this name, or your own by "package.module:Class", made with `options`."""
    try:
        if name in MODELS:
            module = MODELS[name](shape, classes, **options)
        else:
            path, colon, attribute = name.partition(":")
            require("train.model", name, bool(colon), f"{', '.join(MODELS)} or package.module:Class")
            module = getattr(importlib.import_module(path), attribute)(**options)
    except (ImportError, AttributeError, TypeError, RuntimeError) as error:
        raise ValueError(f"train.model: {name!r} with {dict(options)} cannot be made ({error})") from None
    require("train.model", name, isinstance(module, nn.Module), "a torch.nn.Module")
    require("train.model", name, bool(list(module.parameters())), "a module with parameters")
    fault = _fault_in_weights(module) or _fault_in_use(module, shape, classes)
    if fault:
        raise ValueError(f"train.model: {name!r} {fault}")
    return module


def _fault_in_weights(module: nn.Module) -> str:
    for label, weight in module.named_parameters():
        if weight.dtype != torch.float32:
            return f"has weights that are not float32 ({label} is {weight.dtype}); float() makes them so"
        if not weight.requires_grad:
            return f"has weights that are frozen ({label}); here all of them are trained"
    return ""


def _fault_in_use(module: nn.Module, shape: Shape, classes: int) -> str:
    """Clients must get the same from it whenever they use it, for each example, whatever the others in a batch are."""
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    kept = {label: buffer.clone() for label, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            found, again, half = (module(some.clone()) for some in (x, x, x[:2]))
    except Exception as error:  # whatever a module of one's own may raise
        return f"does not take inputs of shape {shape} ({error})"
    if tuple(found.shape) != (4, classes):
        return f"must give (examples, {classes}), not {tuple(found.shape)} for four"
    for label, buffer in module.named_buffers():
        if not torch.equal(buffer, kept[label]):
            return f"keeps running statistics ({label}); try GroupNorm"
    if not torch.allclose(found, again, equal_nan=True):
        return "draws numbers of its own, as dropout does; leave that out"
    if not torch.allclose(found[:2], half, rtol=1e-3, atol=1e-5, equal_nan=True):
        return "looks from one example at others of the batch, as BatchNorm does; try GroupNorm"
    return ""
