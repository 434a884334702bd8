"""Convolution and max-pooling by the fast engine's loops, as operations that PyTorch differentiates.

They work on stacks of models: images (M, B, channels, H, W), with weights of its own for each of the M. What is kept
for the way back from pooling and ReLU is a byte for every number of the result: which place of its window was the
largest, or that it was not above zero.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from equifl.sim import kernels, sixteen
from equifl.sim.compiling import compiled
from equifl.sim.kernels import KIND, POOL, RELU, X_SIZE, Y_SIZE, Y
from equifl.sim.layout import Network
from equifl.sim.llvm import LANES
from equifl.sim.models import Shape

PLACES = 255  # that a window may have; and the place of a slope that ReLU takes, which is none of them


@dataclass(frozen=True)
class Operation:
    """What is done to images: a convolution, max-pooling, or both, and then ReLU if wanted."""

    kernel: tuple[int, ...] = ()  # out, in, height, width
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    window: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    relu: bool = False

    def __post_init__(self) -> None:
        assert self.window or self.kernel, self

    def after(self, first: Operation) -> Operation | None:
        """Both as one, if this is pooling and the first a convolution, rectified or not."""
        return None if self.kernel or first.window else replace(first, window=self.window, step=self.step)

    def shape(self, image: Shape) -> Shape:
        """Of what comes out for images of this shape."""
        channels, *size = image
        for windows, steps, around in ((self.kernel[2:], self.stride, self.padding), (self.window, self.step, (0, 0))):
            if windows:
                sides = zip(size, windows, steps, around, strict=True)
                size = [(side + 2 * border - window) // step + 1 for side, window, step, border in sides]
        return (*self.kernel[:1], *size) if self.kernel else (channels, *size)

    def __call__(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """To images (M, B, in, H, W), with weight (M, out, in, height, width) and bias (M, out)."""
        parts = [] if weight is None else [weight.flatten(1), x.new_zeros(weight.shape[:2]) if bias is None else bias]
        weights = torch.cat([x.new_empty(len(x), 0), *parts], dim=1)
        if torch.is_grad_enabled() and (x.requires_grad or weights.requires_grad):
            y: Tensor = _Differentiable.apply(x, weights, self)
            return y
        return self.run(x, weights, keep=False)[0]

    def run(self, x: Tensor, weights: Tensor, *, keep: bool) -> tuple[Tensor, Tensor]:
        """The result, and the places that were largest, if these are kept."""
        network = laid_out(self, tuple(x.shape[2:]))
        y = x.new_empty(*x.shape[:2], *self.shape(tuple(x.shape[2:])))
        tiles = len(x) * -(-x.shape[1] // LANES)
        size = (tiles, network.layout[0][-1][Y_SIZE]) if keep and (self.window or self.relu) else (0, 0)
        kept = torch.empty(size, dtype=torch.uint8)
        _forward(*_ready(network, x, weights), _rows(y), kept.numpy())
        return y, kept

    def slopes(self, x: Tensor, weights: Tensor, kept: Tensor, slope: Tensor, to_x: Tensor) -> Tensor:
        """Those of the weights, and those of x into `to_x`, if there is room in it."""
        to_weights = weights.new_empty(weights.shape)
        ready = _ready(laid_out(self, tuple(x.shape[2:])), x, weights)
        _backward(*ready, kept.numpy(), _rows(slope), to_weights.numpy(), _rows(to_x))
        return to_weights


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, operation: Operation) -> Tensor:
        y, kept = operation.run(x, weights, keep=True)
        ctx.save_for_backward(x, weights, kept)
        ctx.operation = operation
        return y

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor, None]:
        if torch.is_grad_enabled():  # which it is if these slopes are to have slopes
            raise RuntimeError("convolutions and pooling by our loops have no second derivatives")
        x, weights, kept = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        to_x = x.new_empty(x.shape if wanted else (0, 1, 1))
        to_weights = ctx.operation.slopes(x, weights, kept, slope, to_x)
        return to_x if wanted else None, to_weights, None


@lru_cache(maxsize=256)
def laid_out(operation: Operation, shape: Shape) -> Network:
    """How it lies in memory for images of one shape."""
    layers: list[nn.Module] = []
    if operation.kernel:
        outs, ins, *size = operation.kernel
        how: Any = {"kernel_size": size, "stride": operation.stride, "padding": operation.padding}
        layers.append(nn.Conv2d(ins, outs, device="meta", **how))  # whose weights are nowhere
    if operation.window:
        pool: Any = operation.window, operation.step
        layers.append(nn.MaxPool2d(*pool))
    return Network([*layers, nn.ReLU()] if operation.relu else layers, shape)


_own = threading.local()


def _desk(numbers: int, weights: int) -> tuple[Any, ...]:
    """What this thread works on: weights, gradient; activations, slopes, picks; a tile. Made anew when too small."""
    sizes = (weights, weights, numbers, numbers, numbers)
    there = getattr(_own, "sizes", (-1,) * len(sizes))
    if any(size > room for size, room in zip(sizes, there, strict=True)):
        _own.sizes = tuple(map(max, sizes, there))
        kinds = (torch.float32,) * 4 + (torch.int32,)
        _own.desk = [torch.zeros(room, dtype=kind).numpy() for room, kind in zip(_own.sizes, kinds, strict=True)]
    arrays = (array[:size] for array, size in zip(_own.desk, sizes, strict=True))
    return *arrays, np.zeros(LANES, np.int64)


def _ready(network: Network, x: Tensor, weights: Tensor) -> tuple[Any, ...]:
    """What both ways begin with; images that all models share are there once."""
    shared = len(x) > 1 and x.stride(0) == 0
    images = _rows(x[:1] if shared else x)
    apart = 0 if shared else x.shape[1]
    desk = _desk(*network.sizes)
    return network.layout, network.inputs, network.outputs, desk, images, apart, weights.detach().numpy()


def _rows(stack: Tensor) -> Any:
    """An image a row, one right after the other, which is where the loops look for them."""
    rows = stack.shape[0] * stack.shape[1]
    return stack.detach().reshape(rows, stack[0, 0].numel() if rows else 0).contiguous().numpy()


@njit(nogil=True)
def _next_tile(first, count, tile):
    """The rows of up to sixteen images; how many. Lanes without one repeat the first."""
    filled = min(LANES, count)
    for lane in range(LANES):
        tile[lane] = first + (lane if lane < filled else 0)
    return filled


@njit(nogil=True)
def _store(places, acts, x, tile):
    """Sixteen lanes back into their rows of x, the first lane last, because others repeat its row."""
    eights = len(places) // 8
    sixteen.turned_back(places, acts, x, tile, (eights, len(places), 0, 0))
    for i in range(8 * eights, len(places)):
        for lane in range(LANES - 1, -1, -1):
            x[tile[lane], i] = acts[places[i] + lane]


@compiled
def _forward(network, inputs, outputs, desk, x, apart, weights, y, kept):
    """All images of all models, sixteen at a time; `apart`: how many rows of x one model's are from the next one's."""
    plan, tables, where = network
    params, _, acts, _, pick, tile = desk
    count, last, tiles = len(y) // len(weights), plan[-1], 0
    acts[: plan[1][X_SIZE]] = 0  # and so the border
    for model in range(len(weights)):
        for i in range(len(where)):
            params[where[i]] = weights[model, i]
        for start in range(0, count, LANES):
            _next_tile(model * apart + start, count - start, tile)
            kernels.load(inputs, acts, x, tile)
            kernels.forward(plan, tables, params, acts, pick, 1)
            if len(kept):
                values, which, places = acts[last[Y] :], pick[last[Y] :], kept[tiles]
                for i in range(len(places)):
                    largest = which[i] if last[KIND] == POOL else 0
                    places[i] = PLACES if last[RELU] and values[i] <= 0 else largest
            tiles += 1
            _next_tile(model * count + start, count - start, tile)
            _store(outputs, acts, y, tile)


@compiled
def _backward(network, inputs, outputs, desk, x, apart, weights, kept, slope, to_weights, to_x):
    """And back: the slopes of weights and, if there is room in `to_x`, of images."""
    plan, tables, where = network
    params, gradient, acts, slopes, pick, tile = desk
    count, last, tiles = len(slope) // len(weights), plan[-1], 0
    rectified = plan.copy()
    rectified[:, RELU] = 0  # that is among the places kept
    acts[: plan[1][X_SIZE]] = 0
    for model in range(len(weights)):
        for i in range(len(where)):
            params[where[i]] = weights[model, i]
        gradient[:] = 0
        for start in range(0, count, LANES):
            filled = _next_tile(model * count + start, count - start, tile)
            kernels.load(outputs, slopes, slope, tile)
            if filled < LANES:
                for i in range(last[Y], last[Y] + last[Y_SIZE], LANES):
                    slopes[i + filled : i + LANES] = 0
            if len(kept):
                which, down, places = pick[last[Y] :], slopes[last[Y] :], kept[tiles]
                for i in range(len(places)):
                    if last[KIND] == POOL:
                        which[i] = places[i]
                    elif places[i] == PLACES:
                        down[i] = 0
            tiles += 1
            if len(where):
                _next_tile(model * apart + start, count - start, tile)
                kernels.load(inputs, acts, x, tile)
            none = acts  # there is no linear layer, whose inputs would be turned
            kernels.backward(rectified, tables, params, gradient, acts, slopes, pick, none, len(to_x) > 0, 1)
            if len(to_x):
                _next_tile(model * count + start, count - start, tile)
                _store(inputs, slopes, to_x, tile)
        for i in range(len(where)):
            to_weights[model, i] = gradient[where[i]]
