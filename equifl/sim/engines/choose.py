"""Which engine runs a model: the fast one where model and machine suit it, else the general one, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from torch import nn

from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.torch.engine import Engine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.tracing import pair

if TYPE_CHECKING:
    from equifl.sim.engines.compiled.engine import FastEngine

AnyEngine: TypeAlias = "Engine | FastEngine"


def choose_engine(model: StackedModel, dataset: Dataset, device: str, wanted: str) -> AnyEngine:
    """The engine `wanted`: "general", "fast", or "auto": the fast one if it can run this model here."""
    if wanted == "general" or (wanted == "auto" and device != "cpu"):
        return Engine(model, dataset, device)
    obstacle = _obstacle_in_data(dataset) or obstacle_to_fast(model, device)
    if obstacle and wanted == "fast":
        raise ValueError(f"engine: the fast one cannot run this here: {obstacle}")
    if obstacle:
        return Engine(model, dataset, device, note=obstacle)
    from equifl.sim.engines.compiled.engine import FastEngine  # numba is optional, and takes a second

    return FastEngine(model, dataset)


def obstacle_to_fast(model: StackedModel, device: str) -> str:
    """Why the fast engine cannot run a model here, in words; "" if it can."""
    if device != "cpu":
        return "it is for CPUs"
    return _obstacle_in_model(model) or _obstacle_in_machine()


def _obstacle_in_data(dataset: Dataset) -> str:
    return "the data are integers, and the fast engine takes float32" if dataset.x_train.dtype.kind == "i" else ""


def _obstacle_in_model(model: StackedModel) -> str:
    layers = model.layers
    if not layers:
        plain = "convolutions, ReLU, max-pooling, flatten and linear layers, each with weights of its own"
        return f"the model is no plain sequence of {plain}"
    for layer in layers:
        if isinstance(layer, nn.MaxPool2d) and (layer.ceil_mode or pair(layer.padding) != (0, 0)):
            return f"{layer} has padding or ceil_mode"
        if isinstance(layer, nn.MaxPool2d) and pair(layer.dilation) != (1, 1):
            return f"{layer} has dilation"
    first = next(layer for layer in layers if type(layer) is not nn.Flatten)
    if type(first) is nn.ReLU or type(layers[-1]) is not nn.Linear:
        return "the model must not begin with a ReLU, and must end in a linear layer"
    return ""


def _obstacle_in_machine() -> str:
    try:
        from llvmlite.binding import get_host_cpu_features  # numba's own
        from numba import config
    except ModuleNotFoundError:
        return "numba is not installed; pip install 'equifl[fast]'"
    except Exception as error:  # it is particular about the versions around it
        return f"numba does not load ({error})"
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return "NUMBA_DISABLE_JIT is set"
    features = get_host_cpu_features()
    if not (features.get("fma") or features.get("neon")):  # they would be calls of a function, one number at a time
        return "this CPU has no fused multiply-add"
    return ""
