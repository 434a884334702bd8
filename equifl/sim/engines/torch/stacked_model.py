"""StackedModel: many copies of a model, each with its own weights, computed together."""

from __future__ import annotations

import copy
import itertools
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from equifl.sim.engines.torch.equivalence import Forward, difference
from equifl.sim.models.dropout import has_dropout, seed_dropout
from equifl.sim.models.tracing import chain_of, pair
from equifl.sim.models.trained_weights import trained
from equifl.sim.models.zoo import Shape


@dataclass(frozen=True)
class StackedModel:
    """M copies of a module as one matrix: row m holds the weights of copy m, laid end to end.

    >>> model = StackedModel.of(nn.Linear(2, 1), (2,))
    >>> model.forward(torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 7.0]]), torch.ones(2, 1, 2)).tolist()
    [[[3.5]], [[7.0]]]
    """

    forward: Forward  # nothing is dropped, unless seeds (M,) are its third argument
    module: nn.Module  # one copy; its trained weights do not matter
    parameters: int  # that are trained
    layers: tuple[nn.Module, ...] = ()  # if the module is a chain of stackable layers, all of them trained
    dropout: bool = False

    @classmethod
    def of(cls, module: nn.Module, shape: Shape, examples: Tensor | None = None) -> StackedModel:
        """The stacked form of a module: by layers if all are stackable, else by `mapped`.

        Either is used only if its outputs and gradients match the module's; if neither does, it raises ValueError.

        Args:
            module: the architecture; of its own weights only frozen ones matter.
            shape: of one example.
            examples: of the data, an even number, to compare outputs on; see `difference`.
        """
        parameters, dropout = sum(p.numel() for p in trained(module).values()), has_dropout(module)
        plain = not dropout and all(p.requires_grad for p in module.parameters())
        layers = _pool_first((plain and chain_of(module)) or [])
        if layers and all(map(_stackable, layers)):
            forward = _layered(layers)
            if not difference(module, forward, shape, examples, exact=True):
                return cls(forward, module, parameters, tuple(layers))
        why = ""
        for together in (None, False):
            forward = mapped(module, together=together)
            why = difference(module, forward, shape, examples)
            if not why:
                return cls(forward, module, parameters, dropout=dropout)
        raise ValueError(
            f"train.model: called with other weights (torch.func.functional_call), the model {why}; avoid what keeps "
            "weights of its own, as torch.utils.checkpoint does in the backward pass"
        )


def _pool_first(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """The layers with pooling before ReLU: the result is the same, and ReLU has fewer numbers to process."""
    ordered = list(layers)
    for i, (layer, after) in enumerate(itertools.pairwise(ordered)):
        if type(layer) is nn.ReLU and type(after) is nn.MaxPool2d:
            ordered[i : i + 2] = after, layer
    return ordered


def _stackable(layer: nn.Module) -> bool:
    """Whether the stacked form below supports this layer."""
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.dilation == (1, 1) and not isinstance(layer.padding, str)
        return plain and layer.padding_mode == "zeros" and _has_weight_and_bias(layer)
    if type(layer) is nn.Linear:
        return _has_weight_and_bias(layer)
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices and len(pair(layer.stride)) == 2
    return type(layer) is nn.ReLU


def _has_weight_and_bias(layer: nn.Module) -> bool:
    """Whether these are its only parameters: `torch.nn.utils.weight_norm` computes the weight from others."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


def split(weights: Tensor, module: nn.Module) -> list[Tensor]:
    """The trained parameters of all copies, in the module's order: (M, *shape) each."""
    shapes = [p.shape for p in trained(module).values()]
    parts = torch.split(weights, [shape.numel() for shape in shapes], dim=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def mapped(module: nn.Module, *, together: bool | None = None) -> Forward:
    """The stacked form of any module: all copies together by `vmap`, or one after another.

    The default is one after another for convolutions on a CPU, where `vmap` is slower than a loop.
    """
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
    names = list(trained(module))
    own = threading.local()  # functional_call changes the module: one a thread

    def one(parameters: list[Tensor], inputs: Tensor, *seed: Tensor) -> Tensor:
        weights = dict(zip(names, parameters, strict=True))
        seed_dropout(own.module, *seed or [None])
        logits: Tensor = functional_call(own.module, weights, inputs.clone())  # a module may change its input
        seed_dropout(own.module, None)
        return logits

    def forward(weights: Tensor, inputs: Tensor, *seeds: Tensor) -> Tensor:
        modules = own.__dict__.setdefault("modules", {})  # a device each, for frozen weights and buffers
        if inputs.device not in modules:
            modules[inputs.device] = copy.deepcopy(module).to(inputs.device)
        own.module = modules[inputs.device]
        parameters = split(weights, module)
        if together or (together is None and (inputs.is_cuda or not convolves)):
            return vmap(one)(parameters, inputs, *seeds)
        drawn = zip(*seeds, strict=True) if seeds else [()] * len(inputs)
        triples = zip(range(len(inputs)), inputs, drawn, strict=True)
        return torch.stack([one([p[m] for p in parameters], x, *seed) for m, x, seed in triples])

    return forward


def _layered(layers: list[nn.Module]) -> Forward:
    """Layer by layer for all copies together, by the form that is fast on the device."""
    on_cpu, on_gpu = _on_cpu(layers), _on_gpu(layers)
    return lambda weights, inputs: (on_gpu if inputs.is_cuda else on_cpu)(weights, inputs)


def _on_cpu(layers: list[nn.Module]) -> Forward:
    """On images (B, M * channels, H, W), channels last in memory: grouped convolutions are fastest there."""
    whole = nn.Sequential(*layers)

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        copies = len(inputs)
        left = split(weights, whole)
        x = inputs if inputs.dim() != 5 else _channels_joined(inputs)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                weight, bias = left.pop(0), left.pop(0).flatten()
                if layer.in_channels == 3 and torch.is_grad_enabled():
                    x, weight = _of_four(x), nn.functional.pad(weight, (0, 0, 0, 0, 0, 1))
                x = nn.functional.conv2d(
                    x, weight.flatten(0, 1), bias, layer.stride, layer.padding, layer.dilation, copies
                )
            elif isinstance(layer, nn.Linear):
                x = multiply(x, left.pop(0), left.pop(0))
            elif isinstance(layer, nn.Flatten):
                x = (_copies_separated(x, copies) if x.dim() == 4 else x).flatten(2)
            elif isinstance(layer, nn.MaxPool2d):
                x = layer(x)
            else:
                x = nn.functional.relu(x)  # never in place: it may be the data
        return x

    return forward


def _on_gpu(layers: list[nn.Module]) -> Forward:
    """On images (M, B, channels, H, W): a convolution and its pooling as one Triton kernel, else by patches."""
    whole = nn.Sequential(*layers)

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        left, x, rest = split(weights, whole), inputs, list(layers)
        while rest:
            layer = rest.pop(0)
            if isinstance(layer, nn.Conv2d) and rest and _fusible(layer, rest[0]):
                from equifl.sim.engines.cuda.fused_convolution import convolve_and_pool  # needs Triton

                rest.pop(0)
                relu = bool(rest) and isinstance(rest[0], nn.ReLU)
                rest = rest[1:] if relu else rest
                high, wide = (int(n) for n in layer.padding)
                x = convolve_and_pool(x, left.pop(0), left.pop(0), padding=(high, wide), relu=relu)
            elif isinstance(layer, nn.Conv2d):
                x = _convolve_patches(x, left.pop(0), left.pop(0), layer)
            elif isinstance(layer, nn.Linear):
                x = multiply(x, left.pop(0), left.pop(0))
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(layer, nn.MaxPool2d):
                x = layer(x.flatten(0, 1)).unflatten(0, (len(inputs), -1))
            else:
                x = nn.functional.relu(x)
        return x

    return forward


def _fusible(layer: nn.Conv2d, after: nn.Module) -> bool:
    """Whether the Triton kernel supports this convolution and the layer after it."""
    if type(after) is not nn.MaxPool2d or after.ceil_mode or layer.stride != (1, 1) or layer.kernel_size[1] > 5:
        return False
    two_by_two = pair(after.kernel_size) == pair(after.stride) == (2, 2)
    return two_by_two and pair(after.padding) == (0, 0) and pair(after.dilation) == (1, 1) and _triton_runs()


@lru_cache
def _triton_runs() -> bool:
    """Whether Triton kernels run on this GPU: Triton may be missing, or the C compiler that it needs."""
    try:
        from equifl.sim.engines.cuda.fused_convolution import convolve_and_pool

        one = torch.zeros(1, 1, 1, 2, 2, device="cuda")
        convolve_and_pool(one, one[..., :1, :1].contiguous(), one[:, :, 0, 0, 0], padding=(0, 0), relu=True)
    except Exception as error:  # whatever it is, patches work too
        warnings.warn(
            f"Triton does not run here ({error}): convolutions are computed by patches, several times slower",
            stacklevel=2,
        )
        return False
    return True


def multiply(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The linear layers of all copies."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _channels_joined(images: Tensor) -> Tensor:
    """(M, B, channels, H, W) -> (B, M * channels, H, W), channels last in memory."""
    joined = images.transpose(0, 1).flatten(1, 2)
    return joined.contiguous(memory_format=torch.channels_last)


def _of_four(images: Tensor) -> Tensor:
    """(B, M * 3, H, W) -> (B, M * 4, H, W), the fourth channels empty.

    PyTorch computes the gradient of a grouped convolution on these in a third of the time.
    """
    last = images.permute(0, 2, 3, 1)
    return nn.functional.pad(last.reshape(*last.shape[:3], -1, 3), (0, 1)).flatten(3).permute(0, 3, 1, 2)


def _copies_separated(images: Tensor, copies: int) -> Tensor:
    """(B, M * channels, H, W) -> (M, B, channels, H, W)."""
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
