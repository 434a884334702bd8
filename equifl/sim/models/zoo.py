"""Models by name, and whether a module of the user's own can be trained here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from equifl._numerics.checks import require
from equifl.sim.data.datasets import Dataset

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


def examples_of(dataset: Dataset) -> Tensor:
    """(6, ...) examples to try a model out on: different ones, if there are, and those with most different numbers.

    Of integers, the first are those with the smallest and the largest, for which a model may have no place.
    """
    rows = []
    for x in (dataset.x_train, dataset.x_test):
        if x.dtype.kind == "i":
            rows += [x[place // x[0].size] for place in (int(x.argmin()), int(x.argmax()))]
    extremes = len(rows)
    for x in (dataset.x_train, dataset.x_test):
        rows += list(x[:: -(-len(x) // 64)])
    variety = [len(np.unique(row)) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (i >= extremes, -variety[i]))
    different = list({rows[i].tobytes(): rows[i] for i in order}.values())
    return torch.from_numpy(np.stack([different[i % len(different)] for i in range(6)]))


def make_module(
    name: str, shape: Shape, classes: int, options: Mapping[str, Any], examples: Tensor | None = None
) -> nn.Module:
    """The model of this name, or your own by "package.module:Class", made with `options`.

    It is tried out on random numbers and, if given, on `examples` of the data; if these are integers, on them alone.
    """
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
    fault = _fault_in_weights(module) or _fault_in_use(module, shape, classes, examples)
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


def _fault_in_use(module: nn.Module, shape: Shape, classes: int, examples: Tensor | None) -> str:
    """Clients must get the same from it whenever they use it, for each example, whatever the others in a batch are."""
    batches = [] if examples is None else [examples]
    if examples is None or examples.is_floating_point():
        batches.insert(0, torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)))
    faults = (_fault_with(module, batch, classes) for batch in batches)
    return next(filter(None, faults), "")


def _fault_with(module: nn.Module, x: Tensor, classes: int) -> str:
    kept = {label: buffer.clone() for label, buffer in module.named_buffers()}
    some = len(x) // 2
    try:
        with torch.no_grad():
            found, again, half = (module(part.clone()) for part in (x, x, x[:some]))
    except Exception as error:  # whatever a module of one's own may raise
        return f"does not take inputs of shape {tuple(x.shape[1:])} ({error}){_advice(module, x)}"
    if tuple(found.shape) != (len(x), classes):
        return f"must give (examples, {classes}), not {tuple(found.shape)} for {len(x)} of them"
    for label, buffer in module.named_buffers():
        if not torch.equal(buffer, kept[label]):
            return f"keeps running statistics ({label}); try GroupNorm"
    if not torch.allclose(found, again, equal_nan=True):
        return "draws numbers of its own, as dropout does; leave that out"
    if not torch.allclose(found[:some], half, rtol=1e-3, atol=1e-5, equal_nan=True):
        return "looks from one example at others of the batch, as BatchNorm does; try GroupNorm"
    return ""


def _advice(module: nn.Module, x: Tensor) -> str:
    """What may help a model that does not take its inputs."""
    looks_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())
    if x.is_floating_point():
        return "; an embedding takes integers: save x_train and x_test as int64" if looks_up else ""
    if looks_up:
        return f"; the data are integers from {int(x.min())} to {int(x.max())}"
    return "; the data are integers, for an embedding: save x_train and x_test as float32 if they are measurements"
