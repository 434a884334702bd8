"""Which engine runs a model: the fast one where model and machine suit it, else the general one, and why."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from equifl.sim.data import Dataset
from equifl.sim.engine import Engine
from equifl.sim.models import Shape, StackedModel

if TYPE_CHECKING:
    from equifl.sim.fast import FastEngine

AnyEngine: TypeAlias = "Engine | FastEngine"


def choose_engine(model: StackedModel, dataset: Dataset, device: str, wanted: str) -> AnyEngine:
    """The engine `wanted`: "general", "fast", or "auto", which is the fast one if it can run this model here."""
    if wanted == "general" or (wanted == "auto" and device != "cpu"):
        return Engine(model, dataset, device)
    obstacle = obstacle_to_fast(model, dataset.x_train.shape[1:], device)
    if obstacle and wanted == "fast":
        raise ValueError(f"engine: the fast one cannot run this here: {obstacle}")
    if obstacle:
        return Engine(model, dataset, device, note=obstacle)
    from equifl.sim.fast import FastEngine  # numba is optional, and takes a second

    return FastEngine(model, dataset)


def obstacle_to_fast(model: StackedModel, shape: Shape, device: str) -> str:
    """Why the fast engine cannot run a model here, in words; "" if it can."""
    if device != "cpu":
        return "it is for CPUs"
    return _obstacle_in_model(model, shape) or _obstacle_in_machine()


def _obstacle_in_model(model: StackedModel, shape: Shape) -> str:
    layers = model.layers
    if not layers:
        plain = "convolutions, ReLU, max-pooling, flatten and linear layers, each with weights of its own"
        return f"the model is no plain sequence of {plain}"
    for layer in layers:
        if isinstance(layer, nn.MaxPool2d) and (layer.ceil_mode or {layer.padding, layer.dilation} != {0, 1}):
            return f"{layer} has padding, dilation or ceil_mode"
    if type(layers[0]) is nn.ReLU or type(layers[-1]) is not nn.Linear:
        return "the model must not begin with a ReLU, and must end in a linear layer"
    spread = len(shape) == 3  # an image, until it is flat
    for layer in layers:
        if spread and type(layer) is nn.Linear:
            return f"{layer} acts on an image that is not flat"
        spread = spread and type(layer) is not nn.Flatten
    return ""


def _obstacle_in_machine() -> str:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed; pip install 'equifl[fast]'"
    from llvmlite.binding import get_host_cpu_features  # numba's own

    features = get_host_cpu_features()
    if not (features.get("fma") or features.get("neon")):  # they would be calls of a function, one number at a time
        return "this CPU has no fused multiply-add"
    return ""
