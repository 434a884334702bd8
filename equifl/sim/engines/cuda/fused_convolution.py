"""A convolution, its max-pooling and its ReLU as one kernel on a GPU, for a stack of models at once.

PyTorch would write every patch of every image to memory and read it back; here patches exist in registers only, where
each thread has one output position (a cell) for several channels. What is kept for the backward pass is a byte for
every number of the result: which of the four positions of its pooling window was the largest. All sums are float32, as
on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

# Cells and channels of one program, and its warps: the fastest of those tried on LeNet.
_CELLS, _CHANNELS, _WARPS = 128, 8, 2
_CELLS_OF_WEIGHTS, _WARPS_OF_WEIGHTS = 32, 1

# Else a kernel is compiled again, in seconds, whenever one of these is a multiple of 16, or 1, or neither.
_ANY = ["x_model", "x_image", "weight_model", "bias_model", "images"]


@triton.jit(do_not_specialize=_ANY)
def _correlate(
    x, weight, bias, y, argmax, x_model, x_image, weight_model, bias_model, images,
    IN: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX: tl.constexpr, RELU: tl.constexpr, KEEP: tl.constexpr,
    CELLS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Two by two positions of a convolution for every cell: their largest (MAX), or all four, beside each other."""
    blocks = tl.cdiv(images * ROWS * COLUMNS, CELLS)
    model = (tl.program_id(0) // blocks).to(tl.int64)
    cell = (tl.program_id(0) % blocks) * CELLS + tl.arange(0, CELLS)
    inside = (cell < images * ROWS * COLUMNS)[None, :]
    image, row, column = (cell // (ROWS * COLUMNS)).to(tl.int64), cell // COLUMNS % ROWS, cell % COLUMNS
    out = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = (out < OUT)[:, None]
    corner = x + model * x_model + (image * x_image + 2 * row * WIDTH + 2 * column)[None, :]
    kernel = weight + model * weight_model + (out * (IN * KH * KW))[:, None]
    s00 = tl.zeros((CHANNELS, CELLS), tl.float32)
    s01 = tl.zeros((CHANNELS, CELLS), tl.float32)
    s10 = tl.zeros((CHANNELS, CELLS), tl.float32)
    s11 = tl.zeros((CHANNELS, CELLS), tl.float32)
    for _ in range(IN):
        for _ in range(KH):
            for v in tl.static_range(KW):
                by = tl.load(kernel + v, real, other=0.0)
                s00 += by * tl.load(corner + v, inside, other=0.0)
                s01 += by * tl.load(corner + (v + 1), inside, other=0.0)
                s10 += by * tl.load(corner + (v + WIDTH), inside, other=0.0)
                s11 += by * tl.load(corner + (v + WIDTH + 1), inside, other=0.0)
            corner += WIDTH
            kernel += KW
        corner += (HEIGHT - KH) * WIDTH
    channel = (model * images + image)[None, :] * OUT + out[:, None]
    if MAX:
        best, largest_at = s00, tl.zeros((CHANNELS, CELLS), tl.int32)
        largest_at = tl.where((s01 > best) | (s01 != s01), 1, largest_at)  # nan wins, as in PyTorch
        best = tl.where(largest_at == 1, s01, best)
        largest_at = tl.where((s10 > best) | (s10 != s10), 2, largest_at)
        best = tl.where(largest_at == 2, s10, best)
        largest_at = tl.where((s11 > best) | (s11 != s11), 3, largest_at)
        best = tl.where(largest_at == 3, s11, best)
        best += tl.load(bias + model * bias_model + out, out < OUT, other=0.0)[:, None]
        if RELU:
            largest_at = tl.where(best <= 0, 4, largest_at)  # 4 is none of them: ReLU's gradient is 0
            best = tl.where(best <= 0, 0.0, best)
        at = channel * (ROWS * COLUMNS) + (row * COLUMNS + column)[None, :]
        tl.store(y + at, best, inside & real)
        if KEEP:
            tl.store(argmax + at, largest_at.to(tl.uint8), inside & real)
    else:
        at = channel * (4 * ROWS * COLUMNS) + (4 * row * COLUMNS + 2 * column)[None, :]
        tl.store(y + at, s00, inside & real)
        tl.store(y + at + 1, s01, inside & real)
        tl.store(y + at + 2 * COLUMNS, s10, inside & real)
        tl.store(y + at + 2 * COLUMNS + 1, s11, inside & real)


@triton.jit(do_not_specialize=_ANY[:2] + _ANY[4:])
def _weight_gradients(
    x, gradient, argmax, weight_gradient, bias_gradient, x_model, x_image, images,
    IN: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CELLS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of one row of a kernel: that of every cell, times the inputs around the position that was largest.

    There are sums for five columns, and no wider kernel is given to it.
    """
    model = (tl.program_id(0) // (IN * KH)).to(tl.int64)
    taps = tl.program_id(0) % (IN * KH)
    out = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = out < OUT
    t0 = tl.zeros((CHANNELS, CELLS), tl.float32)
    t1 = tl.zeros((CHANNELS, CELLS), tl.float32)
    t2 = tl.zeros((CHANNELS, CELLS), tl.float32)
    t3 = tl.zeros((CHANNELS, CELLS), tl.float32)
    t4 = tl.zeros((CHANNELS, CELLS), tl.float32)
    total = tl.zeros((CHANNELS, CELLS), tl.float32)
    for start in range(0, images * ROWS * COLUMNS, CELLS):
        cell = start + tl.arange(0, CELLS)
        inside = (cell < images * ROWS * COLUMNS)[None, :]
        image, within = (cell // (ROWS * COLUMNS)).to(tl.int64), cell % (ROWS * COLUMNS)
        at = ((model * images + image) * (OUT * ROWS * COLUMNS) + within)[None, :] + (out * (ROWS * COLUMNS))[:, None]
        largest_at = tl.load(argmax + at, inside & real[:, None], other=4).to(tl.int32)
        upstream = tl.load(gradient + at, inside & real[:, None], other=0.0)
        total += tl.where(largest_at < 4, upstream, 0.0)
        corner = taps // KH * (HEIGHT * WIDTH) + (2 * (within // COLUMNS) + taps % KH) * WIDTH + 2 * (within % COLUMNS)
        near = x + model * x_model + (image * x_image + corner)[None, :]
        for here in tl.static_range(4):
            by = tl.where(largest_at == here, upstream, 0.0)
            beside = near + (here // 2 * WIDTH + here % 2)
            t0 += by * tl.load(beside, inside, other=0.0)
            if KW > 1:
                t1 += by * tl.load(beside + 1, inside, other=0.0)
            if KW > 2:
                t2 += by * tl.load(beside + 2, inside, other=0.0)
            if KW > 3:
                t3 += by * tl.load(beside + 3, inside, other=0.0)
            if KW > 4:
                t4 += by * tl.load(beside + 4, inside, other=0.0)
    at = weight_gradient + ((model * OUT + out) * (IN * KH) + taps) * KW
    tl.store(at, tl.sum(t0, axis=1), real)
    if KW > 1:
        tl.store(at + 1, tl.sum(t1, axis=1), real)
    if KW > 2:
        tl.store(at + 2, tl.sum(t2, axis=1), real)
    if KW > 3:
        tl.store(at + 3, tl.sum(t3, axis=1), real)
    if KW > 4:
        tl.store(at + 4, tl.sum(t4, axis=1), real)
    if taps == 0:
        tl.store(bias_gradient + model * OUT + out, tl.sum(total, axis=1), real)


@triton.jit(do_not_specialize=["count"])
def _spread(
    gradient, argmax, padded, count, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Write each gradient to the position that was largest, within a border of zeros."""
    cell = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)
    largest_at = tl.load(argmax + cell, cell < count, other=4).to(tl.int32)
    row, column = 2 * (cell // COLUMNS % ROWS) + largest_at // 2, 2 * (cell % COLUMNS) + largest_at % 2
    at = cell // (ROWS * COLUMNS) * (HEIGHT * WIDTH) + (TOP + row) * WIDTH + LEFT + column
    tl.store(padded + at, tl.load(gradient + cell, largest_at < 4, other=0.0), largest_at < 4)


def _run(x: Tensor, weight: Tensor, bias: Tensor, *, pool: bool, relu: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Images (M, B, in, H, W) by weight (M, out, in, KH, KW), and which positions were largest, if these are kept."""
    models, images, channels, height, width = x.shape
    outs, (kh, kw) = weight.shape[1], weight.shape[3:]
    rows, columns = (height - kh + 1) // 2, (width - kw + 1) // 2
    size = (models, images, outs, rows, columns) if pool else (models, images, outs, 2 * rows, 2 * columns)
    y = torch.empty(size, device=x.device)
    argmax = torch.empty(size if keep else 0, dtype=torch.uint8, device=x.device)
    grid = (models * triton.cdiv(images * rows * columns, _CELLS), triton.cdiv(outs, _CHANNELS))
    _correlate[grid](
        x, weight, bias, y, argmax, x.stride(0), x.stride(1), weight.stride(0), bias.stride(0), images,
        IN=channels, HEIGHT=height, WIDTH=width, OUT=outs, KH=kh, KW=kw, ROWS=rows, COLUMNS=columns,
        MAX=pool, RELU=relu, KEEP=keep, CELLS=_CELLS, CHANNELS=_CHANNELS, num_warps=_WARPS,
    )  # fmt: skip
    return y, argmax


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y, argmax = _run(x, weight, bias, pool=True, relu=relu, keep=True)
        ctx.save_for_backward(x, weight, argmax)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight, argmax = ctx.saved_tensors
        gradient = gradient.contiguous()
        models, images, channels, height, width = x.shape
        _, outs, _, kh, kw = weight.shape
        rows, columns = argmax.shape[3:]
        weight_gradient = torch.empty(weight.shape, device=x.device)
        bias_gradient = torch.empty(weight.shape[:2], device=x.device)
        _weight_gradients[(models * channels * kh, triton.cdiv(outs, _CHANNELS))](
            x, gradient, argmax, weight_gradient, bias_gradient, x.stride(0), x.stride(1), images,
            IN=channels, HEIGHT=height, WIDTH=width, OUT=outs, KH=kh, KW=kw, ROWS=rows, COLUMNS=columns,
            CELLS=_CELLS_OF_WEIGHTS, CHANNELS=_CHANNELS, num_warps=_WARPS_OF_WEIGHTS,
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, weight_gradient, bias_gradient, None
        # To the input: a convolution of the gradients, at the positions that were largest, with the kernels flipped.
        # Its sides are made even, for it computes two by two, and a row or column too many is left off again.
        border = height + kh - 1 + height % 2, width + kw - 1 + width % 2
        padded = torch.zeros((models, images, outs, *border), device=x.device)
        _spread[(triton.cdiv(gradient.numel(), 1024),)](
            gradient, argmax, padded, gradient.numel(), HEIGHT=border[0], WIDTH=border[1], TOP=kh - 1, LEFT=kw - 1,
            ROWS=rows, COLUMNS=columns, CELLS=1024,
        )  # fmt: skip
        flipped = weight.flip(3, 4).transpose(1, 2).contiguous()
        x_gradient, _ = _run(padded, flipped, flipped, pool=False, relu=False, keep=False)
        return x_gradient[..., :height, :width], weight_gradient, bias_gradient, None


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor, *, padding: tuple[int, int], relu: bool) -> Tensor:
    """Images (M, B, in, H, W) by each model's kernels (M, out, in, KH, KW), with stride 1, then pooled two by two.

    Images and kernels may be shared between models, as `expand` does it.
    """
    height, width = padding
    x = pad(x, (width, width, height, height)) if height or width else x
    x = x if x[0, 0].is_contiguous() else x.contiguous()
    weight, bias = (w if w[0].is_contiguous() else w.contiguous() for w in (weight, bias))
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        fused: Tensor = _Fused.apply(x, weight, bias, relu)
        return fused
    return _run(x, weight, bias, pool=True, relu=relu, keep=False)[0]
