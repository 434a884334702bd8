"""The layers of a module, if it is a chain of layers; also with its own `forward`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

_RELU = {functional.relu, torch.relu, "relu"}
_POOL = {functional.max_pool2d, torch.max_pool2d}
_FLATTEN = {torch.flatten, "flatten"}
_RESHAPE = {torch.reshape, "reshape", "view"}


def chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers that `module` applies to its input, each to what the one before made of it; None if it does more.

    Its `forward` is traced with `torch.fx`. The layers have all weights of the module, in the same order.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(36, 10)
    ...
    ...     def forward(self, x):
    ...         x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
    ...         return self.fc(x.view(x.size(0), -1))
    >>> [type(layer).__name__ for layer in chain_of(Net())]
    ['Conv2d', 'ReLU', 'MaxPool2d', 'Flatten', 'Linear']
    """
    try:
        graph = fx.Tracer().trace(nn.Sequential(module))
    except Exception:  # tracing may fail, and a user's module may raise anything
        return None
    layers = _layers(graph, nn.Sequential(module))
    if layers is None:
        return None
    weights = [id(weight) for layer in layers for weight in layer.parameters()]
    return layers if weights == [id(weight) for weight in module.parameters()] else None


def _layers(graph: fx.Graph, root: nn.Module) -> list[nn.Module] | None:
    start, *nodes = graph.nodes
    passed, sizes, layers = [start], list[fx.Node](), list[nn.Module]()  # passed[-1] is the current value
    for node in nodes:
        source = node.args[0] if node.args else None
        if node.op == "output":
            return layers if source is passed[-1] else None
        if (source in passed and _asks_for_size(node)) or (source in sizes and node.target is operator.getitem):
            sizes.append(node)
            continue
        layer = _as_layer(node, root) if source is passed[-1] else None  # else the input is an earlier value
        if layer is None:
            return None
        layers.append(layer)
        passed.append(node)
    return None


def _asks_for_size(node: fx.Node) -> bool:
    return node.target == "size" or (node.target is getattr and node.args[1] == "shape")


def _as_layer(node: fx.Node, root: nn.Module) -> nn.Module | None:
    """The layer equivalent to a node of the graph, applied to its first argument; None if there is none."""
    what: Any = node.target
    rest: tuple[Any, ...] = node.args[1:]
    named: dict[str, Any] = dict(node.kwargs)
    if node.op == "call_module":
        return root.get_submodule(what) if not rest and not named else None
    if what in _RESHAPE and not named:
        return nn.Flatten() if _keeps_batch_alone(rest[0] if isinstance(rest[0], tuple | list) else rest) else None
    if len(node.all_input_nodes) > 1:  # it depends on sizes, which a layer cannot know
        return None
    if what in _RELU:
        return nn.ReLU()
    if what in _POOL:
        return nn.MaxPool2d(*rest, **named)
    if what in _FLATTEN:
        return nn.Flatten(*(rest or [named.pop("start_dim", 0)]), **named)
    return None


def _keeps_batch_alone(shape: Any) -> bool:
    """Whether a shape is (-1, features) or (batch, features or -1), as written to flatten.

    A wrong number of features would change the batch; callers therefore compare the chain with the module.
    """
    if len(shape) != 2 or not isinstance(shape[1], int):
        return False
    batch = shape[0]
    return (batch == -1 and shape[1] > 0) or (isinstance(batch, fx.Node) and batch.args[1:] == (0,))


def pair(size: Any) -> tuple[int, ...]:
    """The height and width of a window, of which PyTorch takes one number or two."""
    return 2 * (size,) if isinstance(size, int) else tuple(size) * (2 // max(1, len(size)))
