"""Reject models that the engines cannot train, by a test on a few examples."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from equifl._numerics.checks import require
from equifl.sim.data.dataset import Dataset
from equifl.sim.models.trained_weights import trained

Shape: TypeAlias = tuple[int, ...]


def validate(
    name: str, module: Any, shape: Shape, outputs: tuple[Shape, ...] | None, examples: Tensor | None = None
) -> None:
    """Reject a module that the engines cannot train.

    Args:
        name: its name in the configuration, for the error.
        module: the model to train.
        shape: of one example.
        outputs: shapes that it may return for an example; None = any.
        examples: of the data, to test it on; see `examples_of`.
    """
    require("train.model", name, isinstance(module, nn.Module), "a torch.nn.Module")
    require("train.model", name, bool(list(module.parameters())), "a module with parameters")
    fault = _fault_in_weights(module) or _fault_in_use(module, shape, outputs, examples)
    if fault:
        raise ValueError(f"train.model: {name!r} {fault}")


def examples_of(dataset: Dataset) -> Tensor:
    """(6, ...) examples to test a model on: distinct ones, if there are, with the most distinct values.

    Of integer data, the first are those with the smallest and largest value, which an embedding may not cover.
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


def _fault_in_weights(module: nn.Module) -> str:
    for label, weight in module.named_parameters():
        if weight.dtype != torch.float32:
            return f"has weights that are not float32 ({label} is {weight.dtype}); float() makes them so"
    return "" if trained(module) else "has frozen weights only; set requires_grad = True for those to train"


def _fault_in_use(module: nn.Module, shape: Shape, outputs: tuple[Shape, ...] | None, examples: Tensor | None) -> str:
    """Why its output for an example is not always the same, whatever else is in the batch; "" if it is."""
    batches = [] if examples is None else [examples]
    if examples is None or examples.is_floating_point():
        batches.insert(0, torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)))
    faults = (_fault_with(module, batch, outputs) for batch in batches)
    return next(filter(None, faults), "")


def _fault_with(module: nn.Module, x: Tensor, outputs: tuple[Shape, ...] | None) -> str:
    kept = {label: buffer.clone() for label, buffer in module.named_buffers()}
    some = len(x) // 2
    try:
        with torch.no_grad():
            found, again, half = (module(part.clone()) for part in (x, x, x[:some]))
    except Exception as error:  # a user's module may raise anything
        return f"does not take inputs of shape {tuple(x.shape[1:])} ({error}){_advice(module, x)}"
    if found.shape[:1] != (len(x),) or (outputs is not None and tuple(found.shape[1:]) not in outputs):
        each = ", ".join(map(str, (outputs or [("...",)])[0]))
        return f"must return shape (examples, {each}), but returned {tuple(found.shape)} for {len(x)} examples"
    for label, buffer in module.named_buffers():
        if not torch.equal(buffer, kept[label]):
            return f"keeps running statistics ({label}); try GroupNorm"
    if not torch.allclose(found, again, equal_nan=True):
        return (
            "is random otherwise than by nn.Dropout, as with functional.dropout or nn.MultiheadAttention's dropout; "
            "use layers nn.Dropout, Dropout1d, Dropout2d or Dropout3d, whose masks are seeded here"
        )
    if not torch.allclose(found[:some], half, rtol=1e-3, atol=1e-5, equal_nan=True):
        return "mixes the examples of a batch, as BatchNorm does; try GroupNorm"
    return ""


def _advice(module: nn.Module, x: Tensor) -> str:
    """Advice for a model that does not take its inputs."""
    looks_up = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())
    if x.is_floating_point():
        return "; an embedding takes integers: save x_train and x_test as int64" if looks_up else ""
    if looks_up:
        return f"; the data are integers from {int(x.min())} to {int(x.max())}"
    return "; the data are integers, for an embedding: save x_train and x_test as float32 if they are measurements"
