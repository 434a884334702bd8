"""What the compiled engine can do; asking does not load its kernels."""

from __future__ import annotations

from torch import nn

from equifl.sim.engines.base import Job
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.tracing import pair
from equifl.sim.tasks import CLASSIFICATION


def obstacle(job: Job) -> str:
    """Why the compiled engine cannot do a job here, in words; "" if it can."""
    if job.device != "cpu":
        return "it is for CPUs"
    if job.task != CLASSIFICATION:
        return f"it does classification by cross-entropy only, not {job.task.name}"
    if job.dataset.x_train.dtype.kind == "i":
        return "the data are integers, and it takes float32"
    return _obstacle_in_model(job.model) or _obstacle_in_machine()


def _obstacle_in_model(model: StackedModel) -> str:
    layers = model.layers
    if model.dropout:
        return "the model has dropout"
    if not all(weight.requires_grad for weight in model.module.parameters()):
        return "the model has frozen weights"
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
