"""A convolution, its max-pooling and its ReLU as one kernel on a GPU, for a stack of models at once.

PyTorch would write every patch of every image to memory and read it back; here patches exist in registers only, where
each thread has one place of the result for several channels. What is kept for the way back is a byte for every number
of the result: which place of its window was the largest. All sums are float32, as on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

# What one program takes, and by how many warps: the fastest of those tried on LeNet.
_CELLS, _CHANNELS, _WARPS = 128, 8, 2
_CELLS_TO_WEIGHTS, _WARPS_TO_WEIGHTS = 32, 1

# Else a kernel is compiled again, in seconds, whenever one of these is a multiple of 16, or 1, or neither.
_ANY = ["x_model", "x_image", "weight_model", "bias_model", "images"]


@triton.jit(do_not_specialize=_ANY)
def _correlate(
    x, weight, bias, y, places, x_model, x_image, weight_model, bias_model, images,
    IN: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, OUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAX: tl.constexpr, RELU: tl.constexpr, KEEP: tl.constexpr,
    CELLS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Two by two places of a convolution for every cell: their largest (MAX), or all four, beside each other."""
    blocks = tl.cdiv(images * ROWS * COLUMNS, CELLS)
    model = (tl.program_id(0) // blocks).to(tl.int64)
    cell = (tl.program_id(0) % blocks) * CELLS + tl.arange(0, CELLS)
    inside = (cell < images * ROWS * COLUMNS)[None, :]
    image, row, column = (cell // (ROWS * COLUMNS)).to(tl.int64), cell // COLUMNS % ROWS, cell % COLUMNS
    out = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = (out < OUT)[:, None]
    corner = x + model * x_model + (image * x_image + 2 * row * WIDE + 2 * column)[None, :]
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
                s10 += by * tl.load(corner + (v + WIDE), inside, other=0.0)
                s11 += by * tl.load(corner + (v + WIDE + 1), inside, other=0.0)
            corner += WIDE
            kernel += KW
        corner += (HIGH - KH) * WIDE
    channel = (model * images + image)[None, :] * OUT + out[:, None]
    if MAX:
        best, place = s00, tl.zeros((CHANNELS, CELLS), tl.int32)
        place = tl.where((s01 > best) | (s01 != s01), 1, place)  # nan wins, as in PyTorch
        best = tl.where(place == 1, s01, best)
        place = tl.where((s10 > best) | (s10 != s10), 2, place)
        best = tl.where(place == 2, s10, best)
        place = tl.where((s11 > best) | (s11 != s11), 3, place)
        best = tl.where(place == 3, s11, best)
        best += tl.load(bias + model * bias_model + out, out < OUT, other=0.0)[:, None]
        if RELU:
            place = tl.where(best <= 0, 4, place)  # 4 is nowhere: its slope is lost
            best = tl.where(best <= 0, 0.0, best)
        at = channel * (ROWS * COLUMNS) + (row * COLUMNS + column)[None, :]
        tl.store(y + at, best, inside & real)
        if KEEP:
            tl.store(places + at, place.to(tl.uint8), inside & real)
    else:
        at = channel * (4 * ROWS * COLUMNS) + (4 * row * COLUMNS + 2 * column)[None, :]
        tl.store(y + at, s00, inside & real)
        tl.store(y + at + 1, s01, inside & real)
        tl.store(y + at + 2 * COLUMNS, s10, inside & real)
        tl.store(y + at + 2 * COLUMNS + 1, s11, inside & real)


@triton.jit(do_not_specialize=_ANY[:2] + _ANY[4:])
def _to_weights(
    x, slope, places, to_weight, to_bias, x_model, x_image, images,
    IN: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, OUT: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CELLS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The slopes of one row of a kernel: of every cell its slope, times what is around the place where it goes.

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
        place = tl.load(places + at, inside & real[:, None], other=4).to(tl.int32)
        along = tl.load(slope + at, inside & real[:, None], other=0.0)
        total += tl.where(place < 4, along, 0.0)
        corner = taps // KH * (HIGH * WIDE) + (2 * (within // COLUMNS) + taps % KH) * WIDE + 2 * (within % COLUMNS)
        near = x + model * x_model + (image * x_image + corner)[None, :]
        for here in tl.static_range(4):
            by = tl.where(place == here, along, 0.0)
            beside = near + (here // 2 * WIDE + here % 2)
            t0 += by * tl.load(beside, inside, other=0.0)
            if KW > 1:
                t1 += by * tl.load(beside + 1, inside, other=0.0)
            if KW > 2:
                t2 += by * tl.load(beside + 2, inside, other=0.0)
            if KW > 3:
                t3 += by * tl.load(beside + 3, inside, other=0.0)
            if KW > 4:
                t4 += by * tl.load(beside + 4, inside, other=0.0)
    at = to_weight + ((model * OUT + out) * (IN * KH) + taps) * KW
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
        tl.store(to_bias + model * OUT + out, tl.sum(total, axis=1), real)


@triton.jit(do_not_specialize=["count"])
def _spread(
    slope, places, around, count, HIGH: tl.constexpr, WIDE: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Slopes at the places where they go, within a border of zeros."""
    cell = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)
    place = tl.load(places + cell, cell < count, other=4).to(tl.int32)
    row, column = 2 * (cell // COLUMNS % ROWS) + place // 2, 2 * (cell % COLUMNS) + place % 2
    at = cell // (ROWS * COLUMNS) * (HIGH * WIDE) + (TOP + row) * WIDE + LEFT + column
    tl.store(around + at, tl.load(slope + cell, place < 4, other=0.0), place < 4)


def _run(x: Tensor, weight: Tensor, bias: Tensor, *, largest: bool, relu: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Images (M, B, in, H, W) by weight (M, out, in, KH, KW), and the places that were largest, if these are kept."""
    models, images, channels, high, wide = x.shape
    outs, (kh, kw) = weight.shape[1], weight.shape[3:]
    rows, columns = (high - kh + 1) // 2, (wide - kw + 1) // 2
    size = (models, images, outs, rows, columns) if largest else (models, images, outs, 2 * rows, 2 * columns)
    y = torch.empty(size, device=x.device)
    places = torch.empty(size if keep else 0, dtype=torch.uint8, device=x.device)
    grid = (models * triton.cdiv(images * rows * columns, _CELLS), triton.cdiv(outs, _CHANNELS))
    _correlate[grid](
        x, weight, bias, y, places, x.stride(0), x.stride(1), weight.stride(0), bias.stride(0), images,
        IN=channels, HIGH=high, WIDE=wide, OUT=outs, KH=kh, KW=kw, ROWS=rows, COLUMNS=columns,
        MAX=largest, RELU=relu, KEEP=keep, CELLS=_CELLS, CHANNELS=_CHANNELS, num_warps=_WARPS,
    )  # fmt: skip
    return y, places


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y, places = _run(x, weight, bias, largest=True, relu=relu, keep=True)
        ctx.save_for_backward(x, weight, places)
        return y

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight, places = ctx.saved_tensors
        slope = slope.contiguous()
        models, images, channels, high, wide = x.shape
        _, outs, _, kh, kw = weight.shape
        rows, columns = places.shape[3:]
        to_weight, to_bias = torch.empty(weight.shape, device=x.device), torch.empty(weight.shape[:2], device=x.device)
        _to_weights[(models * channels * kh, triton.cdiv(outs, _CHANNELS))](
            x, slope, places, to_weight, to_bias, x.stride(0), x.stride(1), images,
            IN=channels, HIGH=high, WIDE=wide, OUT=outs, KH=kh, KW=kw, ROWS=rows, COLUMNS=columns,
            CELLS=_CELLS_TO_WEIGHTS, CHANNELS=_CHANNELS, num_warps=_WARPS_TO_WEIGHTS,
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, to_weight, to_bias, None
        # To the input: a convolution of the slopes, at the places where they go, with the kernels turned round. Its
        # sides are made even, for it computes two by two, and a row or column too many is left off again.
        border = high + kh - 1 + high % 2, wide + kw - 1 + wide % 2
        around = torch.zeros((models, images, outs, *border), device=x.device)
        _spread[(triton.cdiv(slope.numel(), 1024),)](
            slope, places, around, slope.numel(), HIGH=border[0], WIDE=border[1], TOP=kh - 1, LEFT=kw - 1,
            ROWS=rows, COLUMNS=columns, CELLS=1024,
        )  # fmt: skip
        turned = weight.flip(3, 4).transpose(1, 2).contiguous()
        to_x, _ = _run(around, turned, turned, largest=False, relu=False, keep=False)
        return to_x[..., :high, :wide], to_weight, to_bias, None


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor, *, padding: tuple[int, int], relu: bool) -> Tensor:
    """Of images (M, B, in, H, W), with the kernels (M, out, in, KH, KW) of every model: stride 1, pooled two by two.

    Images and kernels may be shared between models, as `expand` does it.
    """
    high, wide = padding
    x = pad(x, (wide, wide, high, high)) if high or wide else x
    x = x if x[0, 0].is_contiguous() else x.contiguous()
    weight, bias = (w if w[0].is_contiguous() else w.contiguous() for w in (weight, bias))
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        fused: Tensor = _Fused.apply(x, weight, bias, relu)
        return fused
    return _run(x, weight, bias, largest=True, relu=relu, keep=False)[0]
