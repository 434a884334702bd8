"""Models by name, and how many copies of one, each with weights of its own, run as one program."""

from __future__ import annotations

import copy
import importlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from equifl.checks import require
from equifl.sim.chain import chain_of

Forward: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # weights (M, d), inputs (M, B, ...) -> logits (M, B, classes)
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
    for label, part in module.named_modules():
        if list(part.buffers(recurse=False)):
            raise ValueError(f"train.model: {label} ({type(part).__name__}) keeps running statistics; try GroupNorm")
        if isinstance(part, nn.modules.dropout._DropoutNd):
            raise ValueError(f"train.model: {label} ({type(part).__name__}) draws numbers of its own; leave it out")
    require("train.model", name, bool(list(module.parameters())), "a module with parameters")
    try:
        found = tuple(module(torch.zeros(2, *shape)).shape)
    except Exception as error:  # whatever a module of one's own may raise
        raise ValueError(f"train.model: {name!r} does not take inputs of shape {shape} ({error})") from None
    require("train.model", name, found == (2, classes), f"(examples, {classes}) as its output, not {found}")
    return module


@dataclass(frozen=True)
class StackedModel:
    """M copies of a module as one matrix: row m holds the weights of copy m, laid end to end.

    >>> model = StackedModel.of(nn.Linear(2, 1))
    >>> model.forward(torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 7.0]]), torch.ones(2, 1, 2)).tolist()
    [[[3.5]], [[7.0]]]
    """

    forward: Forward
    parameters: int
    layers: tuple[nn.Module, ...] = ()  # where that is all that the module is

    @classmethod
    def of(cls, module: nn.Module) -> StackedModel:
        """Layer by layer where every layer is one we know how to stack, else by `torch.func.vmap`."""
        layers = _pool_first(chain_of(module) or [])
        parameters = sum(p.numel() for p in module.parameters())
        if not layers or not all(map(_stackable, layers)):
            return cls(_mapped(module), parameters)
        return cls(_layered(layers), parameters, tuple(layers))


def _pool_first(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """The largest of rectified numbers is the largest, rectified; and there are fewer to rectify."""
    ordered = list(layers)
    for i, (layer, after) in enumerate(itertools.pairwise(ordered)):
        if type(layer) is nn.ReLU and type(after) is nn.MaxPool2d:
            ordered[i : i + 2] = after, layer
    return ordered


def _stackable(layer: nn.Module) -> bool:
    """Whether the stacked form below does all that this layer does."""
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.dilation == (1, 1) and not isinstance(layer.padding, str)
        return plain and layer.padding_mode == "zeros" and _has_weight_and_bias(layer)
    if type(layer) is nn.Linear:
        return _has_weight_and_bias(layer)
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices
    return type(layer) is nn.ReLU


def _has_weight_and_bias(layer: nn.Module) -> bool:
    """And nothing else: `torch.nn.utils.weight_norm` makes the weight of others."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


def _split(weights: Tensor, module: nn.Module) -> list[Tensor]:
    """The parameters of all copies, in the module's order: (M, *shape) each."""
    shapes = [p.shape for p in module.parameters()]
    parts = torch.split(weights, [shape.numel() for shape in shapes], dim=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def _mapped(module: nn.Module) -> Forward:
    """For any module. On a CPU one copy after another if it convolves: PyTorch's map is slower at that than a loop."""
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
    names = [name for name, _ in module.named_parameters()]
    own = threading.local()  # functional_call puts the weights into the module: one module a thread

    def one(parameters: list[Tensor], inputs: Tensor) -> Tensor:
        logits: Tensor = functional_call(own.module, dict(zip(names, parameters, strict=True)), inputs)
        return logits

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        if not hasattr(own, "module"):
            own.module = copy.deepcopy(module)
        parameters = _split(weights, module)
        if convolves and not inputs.is_cuda:
            return torch.stack([one([p[m] for p in parameters], x) for m, x in enumerate(inputs)])
        return vmap(one)(parameters, inputs)

    return forward


def _layered(layers: list[nn.Module]) -> Forward:
    """Layer by layer for all copies at once, as suits the device."""
    on_cpu, on_gpu = _on_cpu(layers), _on_gpu(layers)
    return lambda weights, inputs: (on_gpu if inputs.is_cuda else on_cpu)(weights, inputs)


def _on_cpu(layers: list[nn.Module]) -> Forward:
    """A grouped convolution over images (B, M * channels, H, W) with channels last in memory is fastest."""
    whole = nn.Sequential(*layers)

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        copies = len(inputs)
        left = _split(weights, whole)
        x = inputs if inputs.dim() != 5 else _side_by_side(inputs)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                weight, bias = left.pop(0), left.pop(0).flatten()
                if layer.in_channels == 3 and torch.is_grad_enabled():
                    x, weight = _of_four(x), nn.functional.pad(weight, (0, 0, 0, 0, 0, 1))
                x = nn.functional.conv2d(
                    x, weight.flatten(0, 1), bias, layer.stride, layer.padding, layer.dilation, copies
                )
            elif isinstance(layer, nn.Linear):
                x = _multiply(x, left.pop(0), left.pop(0))
            elif isinstance(layer, nn.Flatten):
                x = (_apart(x, copies) if x.dim() == 4 else x).flatten(2)
            else:
                x = layer(x)
        return x

    return forward


def _on_gpu(layers: list[nn.Module]) -> Forward:
    """On images (M, B, channels, H, W): a convolution and its pooling as one kernel of ours, else by patches."""
    whole = nn.Sequential(*layers)

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        left, x, rest = _split(weights, whole), inputs, list(layers)
        while rest:
            layer = rest.pop(0)
            if isinstance(layer, nn.Conv2d) and rest and _fusible(layer, rest[0]):
                from equifl.sim.fused import convolve_and_pool  # Triton, which is there where CUDA is

                rest.pop(0)
                relu = bool(rest) and isinstance(rest[0], nn.ReLU)
                rest = rest[1:] if relu else rest
                high, wide = (int(n) for n in layer.padding)
                x = convolve_and_pool(x, left.pop(0), left.pop(0), padding=(high, wide), relu=relu)
            elif isinstance(layer, nn.Conv2d):
                x = _convolve_patches(x, left.pop(0), left.pop(0), layer)
            elif isinstance(layer, nn.Linear):
                x = _multiply(x, left.pop(0), left.pop(0))
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(layer, nn.MaxPool2d):
                x = layer(x.flatten(0, 1)).unflatten(0, (len(inputs), -1))
            else:
                x = layer(x)
        return x

    return forward


def _fusible(layer: nn.Conv2d, after: nn.Module) -> bool:
    """Whether our kernel does what this convolution and this layer after it do."""
    if type(after) is not nn.MaxPool2d or after.ceil_mode or layer.stride != (1, 1) or layer.kernel_size[1] > 5:
        return False

    def is_pair(value: object, number: int) -> bool:
        return value in (number, (number, number), [number, number])

    two_by_two = is_pair(after.kernel_size, 2) and is_pair(after.stride, 2)
    return two_by_two and is_pair(after.padding, 0) and is_pair(after.dilation, 1) and _triton_runs()


@lru_cache
def _triton_runs() -> bool:
    """Whether kernels of ours run on this GPU: Triton may be missing, or the C compiler that it wants."""
    try:
        from equifl.sim.fused import convolve_and_pool

        one = torch.zeros(1, 1, 1, 2, 2, device="cuda")
        convolve_and_pool(one, one[..., :1, :1].contiguous(), one[:, :, 0, 0, 0], padding=(0, 0), relu=True)
    except Exception as error:  # whatever it is, there is another way
        warnings.warn(f"convolutions go by patches, several times slower: no Triton here ({error})", stacklevel=2)
        return False
    return True


def _multiply(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _side_by_side(images: Tensor) -> Tensor:
    """(M, B, channels, H, W) -> (B, M * channels, H, W), channels last in memory."""
    joined = images.transpose(0, 1).flatten(1, 2)
    return joined.contiguous(memory_format=torch.channels_last)


def _of_four(images: Tensor) -> Tensor:
    """(B, M * 3, H, W) -> (B, M * 4, H, W), the fourth channels empty.

    For these the gradient of a grouped convolution takes PyTorch a third of the time.
    """
    last = images.permute(0, 2, 3, 1)
    return nn.functional.pad(last.reshape(*last.shape[:3], -1, 3), (0, 1)).flatten(3).permute(0, 3, 1, 2)


def _apart(images: Tensor, copies: int) -> Tensor:
    """And back."""
    return images.reshape(len(images), copies, -1, *images.shape[2:]).transpose(0, 1)


def _convolve_patches(x: Tensor, weight: Tensor, bias: Tensor, layer: nn.Conv2d) -> Tensor:
    """Every patch of every image as a row, times the kernels of its copy."""
    high, wide = (int(n) for n in layer.padding)
    x = nn.functional.pad(x, (wide, wide, high, high)) if high or wide else x
    windows = x.unfold(3, layer.kernel_size[0], layer.stride[0]).unfold(4, layer.kernel_size[1], layer.stride[1])
    copies, batch, _, rows, columns = windows.shape[:5]
    patches = windows.permute(0, 1, 3, 4, 2, 5, 6).reshape(copies, batch * rows * columns, -1)
    out = torch.baddbmm(bias.unsqueeze(1), patches, weight.flatten(2).transpose(1, 2))
    return out.view(copies, batch, rows, columns, -1).permute(0, 1, 4, 2, 3)
