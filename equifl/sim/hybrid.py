"""Any module on a CPU, with its max-pooling, and the convolutions that PyTorch is slow at, by the fast engine's loops.

PyTorch's own fill a register with eight channels of a pixel. Where there are fewer, as in the first layer of a network
for images, ours are up to four times as fast: they fill it with one channel of sixteen images. Pooling and ReLU after
it become part of a convolution. In a plain chain of layers all convolutions are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from equifl.sim.chain import pair
from equifl.sim.llvm import WIDE
from equifl.sim.models import Shape
from equifl.sim.operations import PLACES, Operation
from equifl.sim.stacked import Forward, StackedModel, mapped, multiply, split

FEW = 256 if WIDE else 32  # channels, from which on PyTorch's convolutions are as fast as ours
_LARGE = 2**15  # numbers of an example, so many that copies one after another are faster: they stay in the caches
_NOTHING = f"the model has no plain convolution of fewer than {FEW} channels and no plain max-pooling"
_POOL = {functional.max_pool2d, torch.max_pool2d}
_IN_PLACE = {torch.relu_, Tensor.relu_}
_RELU = {functional.relu, torch.relu, Tensor.relu, *_IN_PLACE}
_CONVOLUTIONS = {getattr(functional, f"conv{kind}{n}d") for kind in ("", "_transpose") for n in (1, 2, 3)}

Call: TypeAlias = tuple[Operation, Tensor, Tensor | None, Tensor | None]  # on images, with weight and bias


def hybrid(model: StackedModel, shape: Shape) -> tuple[StackedModel | None, str]:
    """The same model with our loops in it; or none, and why.

    Args:
        model: by PyTorch alone.
        shape: of one example.
    """
    if model.layers:
        steps = _steps(model.layers)
        ours = any(isinstance(step, Operation) for step in steps)
        return (replace(model, forward=_layered(model.module, steps)), "") if ours else (None, _NOTHING)
    why = ""
    for together in (True, False):
        seen: set[str] = set()
        within = partial(_Ours, together=together, seen=seen)
        other = replace(model, forward=mapped(model.module, together=together, within=within))
        why = _difference(model, other, shape)
        if not why and "ours" not in seen:
            return None, _NOTHING
        if not why and not (together and seen & {"theirs", "large"}):
            return other, ""
    return None, f"with our loops in it, the model {why}"


def _convolution(
    kernel: Shape, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Operation | None:
    """As an operation of ours, if it is none of the rarer kinds."""
    padding = 0 if padding == "valid" else padding
    plain = groups == 1 and pair(dilation) == (1, 1) and not isinstance(padding, str)
    return Operation(tuple(kernel), pair(stride), pair(padding)) if plain else None


def _pooling(
    kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Operation | None:
    plain = (
        pair(padding) == (0, 0) and pair(dilation) == (1, 1) and not ceil_mode and prod(pair(kernel_size)) <= PLACES
    )
    return Operation(window=pair(kernel_size), step=pair(stride or kernel_size)) if plain else None


def _steps(layers: Iterable[nn.Module]) -> list[Operation | nn.Module]:
    """A convolution, pooling after it and ReLU after that are one operation; other layers are what they are."""
    steps: list[Operation | nn.Module] = []
    for layer in layers:
        last, ours = steps[-1] if steps else None, None
        if isinstance(layer, nn.Conv2d):
            ours = _convolution(layer.weight.shape, layer.stride, layer.padding)
        elif isinstance(layer, nn.MaxPool2d):
            ours = _pooling(layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
            both = ours.after(last) if ours and isinstance(last, Operation) else None
            if both:
                ours, _ = both, steps.pop()
        elif isinstance(layer, nn.ReLU) and isinstance(last, Operation):
            ours = replace(last, relu=True)
            steps.pop()
        steps.append(ours or layer)
    return steps


def _layered(module: nn.Module, steps: list[Operation | nn.Module]) -> Forward:
    """Step by step for all copies at once, on images (M, B, channels, H, W)."""

    def forward(weights: Tensor, inputs: Tensor) -> Tensor:
        left, x = split(weights, module), inputs
        for step in steps:
            if isinstance(step, Operation):
                x = step(x, left.pop(0), left.pop(0)) if step.kernel else step(x)
            elif isinstance(step, nn.Linear):
                x = multiply(x, left.pop(0), left.pop(0))
            elif isinstance(step, nn.Flatten):
                x = x.flatten(2)
            elif isinstance(step, nn.MaxPool2d):
                x = step(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                x = functional.relu(x)
        return x

    return forward


class _Ours(TorchFunctionMode):
    """While this is entered, PyTorch's functions do by our loops what these do better.

    Args:
        together: whether it is within PyTorch's map, so that there are many copies that look like one.
        seen: "ours" is added to it when there was something for us to do, "large" if the result was, and "theirs"
            when a convolution was not for us.
    """

    def __init__(self, *, together: bool, seen: set[str]) -> None:
        super().__init__()
        self._together, self._seen = together, seen
        self._waiting: list[ReferenceType[_PutOff]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        waiting = [one for reference in self._waiting if (one := reference()) is not None]
        result = None
        if len(waiting) == 1 and args and args[0] is waiting[0]:  # so that nobody can ask for what came before it
            result = waiting[0].further(func, args, kwargs)
        if result is None:
            for one in waiting:
                one.now()
            self._waiting.clear()
            if _PutOff in types:
                args, kwargs = tree_map(_now, (args, kwargs))
            call = _call(func, args, kwargs)
            if call is None:
                if func in _CONVOLUTIONS:
                    self._seen.add("theirs")
                return func(*args, **kwargs)
            result = _PutOff.of(self._run, call)
        if not any(result is one for one in waiting):
            self._waiting.append(ref(result))
        return result

    def _run(self, operation: Operation, x: Tensor, *weights: Tensor | None) -> Tensor:
        if self._together:
            y: Tensor = _Together.apply(operation, x, *weights)  # type: ignore[no-untyped-call]
        else:
            y = operation(x[None], *(None if part is None else part[None] for part in weights))[0]
        self._seen.add("ours")
        if prod(y.shape[1:]) > _LARGE:
            self._seen.add("large")
        return y


class _PutOff(Tensor):
    """What an operation will give: it is done when it is known whether pooling and ReLU become part of it.

    PyTorch's next function decides, so that nothing that it is made of can change before.
    """

    run: Callable[..., Tensor]
    call: Call
    done: Tensor | None

    @staticmethod
    def of(run: Callable[..., Tensor], call: Call) -> _PutOff:
        operation, x, _, _ = call
        size = (len(x), *operation.shape(tuple(x.shape[1:])))
        made: _PutOff = Tensor._make_wrapper_subclass(_PutOff, size, dtype=x.dtype)
        made.run, made.call, made.done = run, call, None
        return made

    def further(self, func: Any, args: Any, kwargs: Any) -> _PutOff | None:
        """What there is after one more function; None if that cannot be part of it."""
        operation, x, weight, bias = self.call
        if func in _RELU:
            rectified = replace(operation, relu=True), x, weight, bias
            if func not in _IN_PLACE and not kwargs.get("inplace"):
                return _PutOff.of(self.run, rectified)
            self.call = rectified
            return self
        with torch._C.DisableTorchFunctionSubclass():  # else whoever looks at its shape has it done
            call = _call(func, args, kwargs)
        both = call[0].after(operation) if call else None
        return _PutOff.of(self.run, (both, x, weight, bias)) if both else None

    def now(self) -> Tensor:
        if self.done is None:
            self.done = self.run(*self.call)
            del self.call
        return self.done

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Whatever is done to it is done to what it gives."""
        args, kwargs = tree_map(_now, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func} of what is not there yet")  # what goes past the function above comes here


def _now(part: Any) -> Any:
    return part.now() if isinstance(part, _PutOff) else part


class _Together(torch.autograd.Function):
    """What PyTorch's map does with an operation of ours: all copies at once."""

    @staticmethod
    def vmap(info: Any, dims: Any, operation: Operation, *given: Any) -> tuple[Tensor, int]:
        def stacked(part: Any, dim: int | None) -> Any:
            if part is None:
                return None
            return part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)

        return operation(*map(stacked, given, dims[1:])), 0

    @staticmethod
    def forward(*given: Any) -> Any:
        raise NotImplementedError("outside of the map")  # then the module goes another way, see `hybrid`

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing: slopes are those of the operation."""


def _call(func: Any, args: Any, kwargs: Any) -> Call | None:
    """As an operation of ours, if this function is one."""
    with suppress(TypeError):  # whatever it is called with, PyTorch will know, or say
        if func is functional.conv2d:
            return _convolve(*args, **kwargs)
        if func in _POOL:
            return _pool(*args, **kwargs)
    return None


def _convolve(input: Tensor, weight: Tensor, bias: Tensor | None = None, *how: Any, **named: Any) -> Call | None:
    """The arguments are those of `torch.nn.functional.conv2d`, and `max_pool2d` below."""
    suits = weight.dim() == 4 and weight.shape[1] < FEW and (bias is None or bias.shape == weight.shape[:1])
    operation = _convolution(weight.shape, *how, **named) if suits else None
    return (operation, input, weight, bias) if operation and _fits(operation, input, weight, bias) else None


def _pool(input: Tensor, *how: Any, return_indices: bool = False, **named: Any) -> Call | None:
    operation = None if return_indices else _pooling(*how, **named)
    return (operation, input, None, None) if operation and _fits(operation, input) else None


def _fits(operation: Operation, x: Tensor, *weights: Tensor | None) -> bool:
    """Whether these are images of float32 that are large enough, and nothing special."""
    plain = [
        type(part) in (Tensor, nn.Parameter, _PutOff) and part.dtype == torch.float32
        for part in (x, *weights)
        if part is not None
    ]
    if not all(plain) or x.dim() != 4 or not len(x) or operation.kernel[1:2] not in ((), x.shape[1:2]):
        return False
    windows = operation.kernel[2:] or operation.window
    sizes = zip(x.shape[2:], operation.padding, windows, strict=True)
    return all(size + 2 * around >= window for size, around, window in sizes)


def _difference(model: StackedModel, other: StackedModel, shape: Shape) -> str:
    """What is wrong with the other, on some random examples and with two sets of weights; "" if nothing is."""
    draw = torch.Generator().manual_seed(0)
    row = nn.utils.parameters_to_vector(model.module.parameters()).detach().cpu()
    given = torch.stack([row, row + 0.1 * torch.randn(row.shape, generator=draw)])  # what is 0 at first shows too
    inputs, results = torch.randn(2, 3, *shape, generator=draw), []
    for forward in (model.forward, other.forward):
        weights = given.clone().requires_grad_(True)
        try:
            logits = forward(weights, inputs)
            (slopes,) = torch.autograd.grad(logits.square().sum(), weights)
        except Exception as error:  # whatever a module of one's own may raise where it is given what it does not know
            return f"fails ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
        results.append([logits.detach(), *split(slopes, model.module)])
    # One rounding error at a ReLU's zero changes slopes by a thousandth.
    least = 1e-3 * torch.linalg.norm(torch.cat([part.flatten() for part in results[0][1:]]))
    for i, (a, b) in enumerate(zip(*results, strict=True)):
        size = torch.linalg.norm(a) if i == 0 else torch.maximum(torch.linalg.norm(a), least)
        if not torch.linalg.norm(a - b) <= (1e-2 if i else 1e-3) * size:  # nor may it be nan
            return "gives other slopes" if i else "gives other values"
    return ""
