"""PyTorch's convolutions, max-pooling and ReLU by the fast engine's loops, in whatever module they are.

PyTorch's own fill a register with channels of a pixel, ours with one channel of sixteen images: the fewer channels,
the more that gains. Pooling and ReLU right after a convolution become part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
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

FEW = 256 if WIDE else 32  # channels, from which on PyTorch's convolutions are as fast as ours
_LARGE = 2**15  # numbers of an example, so many that copies one after another are faster: they stay in the caches
_POOL = {functional.max_pool2d, torch.max_pool2d}
_IN_PLACE = {torch.relu_, Tensor.relu_}
_RELU = {functional.relu, torch.relu, Tensor.relu, *_IN_PLACE}
_CONVOLUTIONS = {getattr(functional, f"conv{kind}{n}d") for kind in ("", "_transpose") for n in (1, 2, 3)}

Call: TypeAlias = tuple[Operation, Tensor, Tensor | None, Tensor | None]  # on images, with weight and bias


def convolution(
    kernel: Shape, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Operation | None:
    """As an operation of ours, if it is none of the rarer kinds, nor an error."""
    padding = 0 if padding == "valid" else padding
    plain = groups == 1 and pair(dilation) == (1, 1) and not isinstance(padding, str) and _are_sizes(stride)
    return Operation(tuple(kernel), pair(stride), pair(padding)) if plain else None


def pooling(
    kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Operation | None:
    """The same of max-pooling."""
    stride = stride or kernel_size
    plain = pair(padding) == (0, 0) and pair(dilation) == (1, 1) and not ceil_mode
    fits = _are_sizes(kernel_size) and _are_sizes(stride) and prod(pair(kernel_size)) <= PLACES
    return Operation(window=pair(kernel_size), step=pair(stride)) if plain and fits else None


def _are_sizes(given: Any) -> bool:
    return len(pair(given)) == 2 and min(pair(given)) > 0


class OurLoops(TorchFunctionMode):
    """While this is entered, PyTorch's functions do by our loops what these do better.

    Args:
        together: whether it is within PyTorch's map, so that there are many copies that look like one.
        patient: whether an operation waits for the function after it, which may become part of it.
        seen: "ours" is added to it when there was something for us to do, "large" if the result was, and "theirs"
            when a convolution was not for us.
    """

    def __init__(self, *, together: bool, seen: set[str], patient: bool = True) -> None:
        super().__init__()
        self._together, self._patient, self._seen = together, patient, seen
        self._waiting: list[ReferenceType[_PutOff]] = []

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if error[0] is None:
            self._finish()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        last = self._waiting[-1]() if self._waiting else None
        result = last.further(func, args, kwargs) if last is not None and args and args[0] is last else None
        if result is None:
            self._finish()
            if _PutOff in types:
                args, kwargs = tree_map(_now, (args, kwargs))
            call = _call(func, args, kwargs)
            if call is None or not self._patient:
                return self.do(func, *args, **kwargs)
            result = _PutOff.of(self, call)
        if result is not last:
            self._waiting.append(ref(result))
        return result

    def _finish(self) -> None:
        """Whatever somebody has and is not there yet."""
        for reference in self._waiting:
            one = reference()
            if one is not None:
                one.now()
        self._waiting.clear()

    def do(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """By our loops if they can."""
        call = _call(func, args, kwargs)
        if call is None and func in _CONVOLUTIONS:
            self._seen.add("theirs")
        return self.run(*call) if call else func(*args, **kwargs)

    def run(self, operation: Operation, x: Tensor, *weights: Tensor | None) -> Tensor:
        if self._together:
            y: Tensor = _Together.apply(operation, x, *weights)  # type: ignore[no-untyped-call]
        else:
            y = operation(x[None], *(None if part is None else part[None] for part in weights))[0]
        self._seen.add("ours")
        if prod(y.shape[1:]) > _LARGE:
            self._seen.add("large")
        return y


class _PutOff(Tensor):
    """What an operation will give: it is done when PyTorch's next function is called, which may become part of it.

    If by then somebody still has what it was made of, that is done, and what came after it.
    """

    ours: OurLoops
    call: Call
    made_of: list[tuple[ReferenceType[_PutOff] | None, Callable[[Tensor], Tensor]]]  # and what was done to it, in turn
    with_slopes: bool
    done: Tensor | None

    @staticmethod
    def of(ours: OurLoops, call: Call) -> _PutOff:
        operation, x, _, _ = call
        size = (len(x), *operation.shape(tuple(x.shape[1:])))
        made: _PutOff = Tensor._make_wrapper_subclass(_PutOff, size, dtype=x.dtype)
        made.ours, made.call, made.made_of, made.done = ours, call, [], None
        made.with_slopes = torch.is_grad_enabled()
        return made

    def further(self, func: Any, args: Any, kwargs: Any) -> _PutOff | None:
        """What there is after one more function, of it; None if that cannot become part of it."""
        (operation, x, weight, bias), ours, more = self.call, self.ours, args[1:]
        if func in _RELU:
            both: Operation | None = replace(operation, relu=True)
        else:
            with torch._C.DisableTorchFunctionSubclass():  # else whoever looks at its shape has it done
                call = _call(func, args, kwargs)
            both = call[0].after(operation) if call else None
        if both is None:
            return None

        def then(y: Tensor) -> Tensor:
            done: Tensor = ours.do(func, y, *more, **kwargs)
            return done

        if func in _IN_PLACE or kwargs.get("inplace"):
            self.call = both, x, weight, bias
            self.made_of.append((None, then))
            return self
        made = _PutOff.of(ours, (both, x, weight, bias))
        made.made_of = [*self.made_of, (ref(self), then)]
        return made

    def now(self) -> Tensor:
        if self.done is None:
            if torch.is_grad_enabled() != self.with_slopes:  # PyTorch did not say that it was turning them off
                raise RuntimeError(
                    "a convolution was put off to where there are no slopes; engine = 'general' can do it"
                )
            rest: list[Callable[[Tensor], Tensor]] = []
            for reference, then in reversed(self.made_of):
                rest.insert(0, then)
                before = reference() if reference else None
                if before is not None:
                    self.done = reduce(lambda y, then: then(y), rest, before.now())
                    return self.done
            self.done = self.ours.run(*self.call)
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
    operation = convolution(weight.shape, *how, **named) if suits else None
    return (operation, input, weight, bias) if operation and _fits(operation, input, weight, bias) else None


def _pool(input: Tensor, *how: Any, return_indices: bool = False, **named: Any) -> Call | None:
    operation = None if return_indices else pooling(*how, **named)
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
