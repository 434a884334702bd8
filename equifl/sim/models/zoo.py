"""Models by name: the built-in ones, and a user's module by its import path.

A new model is a function in this file and an entry in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from equifl._numerics.checks import brief, integer, is_number, require, shown
from equifl.experiment.named_object import named_object
from equifl.sim.models.dropout import with_seeded_dropout
from equifl.sim.models.trained_weights import trained
from equifl.sim.models.transformer import CausalTransformer
from equifl.sim.models.validation import validate

Shape: TypeAlias = tuple[int, ...]
MakeModule: TypeAlias = Callable[..., nn.Module]


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
    integer("train.model_options.hidden", hidden, least=1)
    inputs = torch.Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def transformer(
    shape: Shape, classes: int, width: int = 32, heads: int = 2, layers: int = 1, dropout: float = 0.0
) -> nn.Module:
    """A causal transformer: what follows each token of a sequence."""
    allowed = f"lenet, mlp or logistic for data of shape {shape}; transformer is for sequences of tokens"
    require("train.model", "transformer", len(shape) == 1, allowed)
    for name, value in (("width", width), ("heads", heads), ("layers", layers)):
        integer(f"train.model_options.{name}", value, least=1)
    require("train.model_options.heads", heads, width % heads == 0, f"a divisor of the width {width}")
    inside = is_number(dropout) and 0 <= dropout < 1
    require("train.model_options.dropout", dropout, inside, "from 0 to below 1")
    return CausalTransformer(shape[0], classes, width=width, heads=heads, layers=layers, dropout=dropout)


def linear(shape: Shape, classes: int) -> nn.Module:
    """One linear layer: linear regression, or with classes multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes))


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return linear(shape, classes)


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "lenet": lenet,
    "mlp": mlp,
    "logistic": logistic,
    "linear": linear,
    "transformer": transformer,
}


def make_module(
    name: str,
    shape: Shape,
    classes: int,
    options: Mapping[str, Any],
    examples: Tensor | None = None,
    given: MakeModule | None = None,
    outputs: tuple[Shape, ...] | None = (),
) -> nn.Module:
    """A model that the engines can train: what `build_module` gives, its dropout seeded, tried out.

    It is tested on random numbers and, if given, on `examples` of the data; if these are integers, on them only. What
    it returns for an example must have one of the shapes `outputs`, or be a number for each class; None = any.
    """
    module = build_module(name, shape, classes, options, given)
    module = with_seeded_dropout(module) if isinstance(module, nn.Module) else module
    validate(name, module, shape, ((classes,),) if outputs == () else outputs, examples)
    return module


def build_module(
    name: str, shape: Shape, classes: int, options: Mapping[str, Any], given: MakeModule | None = None
) -> nn.Module:
    """The model of this name, or your own by "package.module:Class", or what `given` makes; with `options`."""
    own = given
    if own is None and name not in MODELS:
        require("train.model", name, ":" in name, f"{', '.join(MODELS)} or package.module:Class")
        own = named_object("train.model", name, _makes_module, "a torch.nn.Module class or a function")
    try:
        return MODELS[name](shape, classes, **options) if own is None else own(**options)
    except Exception as error:  # a user's module may raise anything
        if own is None and isinstance(error, ValueError):
            raise
        raise ValueError(
            f"train.model: {shown(name)} with {shown(dict(options))} cannot be made ({brief(error)})"
        ) from None


def count_parameters(
    name: str, shape: Shape, classes: int, options: Mapping[str, Any], given: MakeModule | None = None
) -> int:
    """The number of a model's trained weights; it takes no memory if it can be made on PyTorch's device "meta"."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                module = build_module(name, shape, classes, options, given)
        except ValueError:  # it computes with its weights as it is made, or cannot be made at all
            module = build_module(name, shape, classes, options, given)
    return sum(weight.numel() for weight in trained(module).values()) if isinstance(module, nn.Module) else 0


def _makes_module(found: Any) -> bool:
    return isinstance(found, FunctionType) or (isinstance(found, type) and issubclass(found, nn.Module))
