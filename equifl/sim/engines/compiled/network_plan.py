"""From the layers of a module to the plan and tables that the compiled code reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from equifl.signals import Ints
from equifl.sim.engines.compiled.llvm import AVX512
from equifl.sim.engines.compiled.memory_layout import (
    CONVOLUTION,
    INPUT,
    LINEAR,
    POOL,
    SIMD_WIDTH,
    STAGE,
    TILES,
    NetworkLayout,
    Workspace,
)
from equifl.sim.models.tracing import pair
from equifl.sim.models.zoo import Shape

_NONE = np.zeros(0, np.int64)
# When the backward pass to a convolution's input gathers pixel by pixel (docs/performance.md):
_LEAST_CHANNELS = 4  # of the input: with fewer, registers stay empty
_MOST_WEIGHTS = 640  # of one input channel: with more, those of six channels do not stay in the nearest cache


class Network:
    """A network laid out in memory: activations, weights and tables each in one array, end to end.

    Args:
        layers: convolutions, ReLU, max-pooling, flatten and linear layers, of which the last is linear.
        shape: of one example.

    Attributes:
        layout: what the compiled code reads.
    """

    def __init__(self, layers: Sequence[nn.Module], shape: Shape) -> None:
        self._stages: list[dict[str, int]] = []
        self._tables: list[Ints] = []
        self._weight_positions: list[Ints] = []
        self._table_entries = self._tile_size = self._weights_size = self._deinterleaved_size = 0
        # Of the layer added last: where it is, what is reserved for it, and (channels, height, width) where each of
        # its numbers is, from there.
        self._start = self._size = 0
        self._offsets: Ints
        self._reserve(shape if len(shape) == 3 else (*shape, 1, 1), layers)
        self._add_stage(INPUT, {"taps": self._offsets.size}, {"y_output_table": self._offsets})
        add: dict[type, Callable[[Any, Sequence[nn.Module]], None]] = {
            nn.Conv2d: self._add_convolution,
            nn.Linear: self._add_linear,
            nn.MaxPool2d: self._add_pool,
            nn.ReLU: self._add_relu,
            nn.Flatten: self._add_flatten,
        }
        for i, layer in enumerate(layers):
            add[type(layer)](layer, layers[i + 1 :])
        self.layout = self._finished()

    def workspace(self) -> Workspace:
        """Arrays for one thread, all zero: the borders of images stay so."""
        tiles = TILES * self._tile_size
        return Workspace(
            weights=_zeros(self._weights_size),
            weights_gradient=_zeros(self._weights_size),
            velocity=_zeros(self._weights_size),
            activations=_zeros(tiles),
            gradients=_zeros(tiles),
            argmax=_zeros(tiles, torch.int32),
            deinterleaved=_zeros(self._deinterleaved_size),
            examples=np.zeros((TILES, SIMD_WIDTH), np.int64),
            filled=np.zeros(TILES, np.int64),
        )

    def _finished(self) -> NetworkLayout:
        """The plan and tables of the stages added so far. The positions of a linear layer are the tiles."""
        tile_table = self._table_entries
        self._tables.append(self._tile_size * np.arange(TILES))
        plan = np.zeros(len(self._stages), STAGE)
        for i, stage in enumerate(self._stages):
            tiles = {"x_window_table": tile_table, "y_position_table": tile_table} if stage["kind"] == LINEAR else {}
            for field, value in (stage | tiles).items():
                plan[field][i] = value
        tables = np.concatenate(self._tables).astype(np.int32)
        self._tables.clear()  # their numbers have been copied
        return NetworkLayout(plan, tables, np.concatenate([_NONE, *self._weight_positions]), self._tile_size)

    def _reserve(self, shape: Shape, consumers: Sequence[nn.Module]) -> None:
        """Reserve activations for an image, with a border of zeros if the next layer pads."""
        consumer = next((layer for layer in consumers if type(layer) is not nn.ReLU), None)
        self._pad_y, self._pad_x = map(int, consumer.padding) if isinstance(consumer, nn.Conv2d) else (0, 0)
        channels, height, width = shape
        self._line = width + 2 * self._pad_x
        # An odd number of vectors, so that channels do not compete for cache lines.
        self._plane = (height + 2 * self._pad_y) * self._line | 1
        c, y, x = np.ogrid[:channels, :height, :width]
        self._offsets = SIMD_WIDTH * (c * self._plane + (y + self._pad_y) * self._line + x + self._pad_x)
        self._start, self._size = self._tile_size, SIMD_WIDTH * channels * self._plane
        self._tile_size += self._size

    def _add_stage(self, kind: int, fields: dict[str, int], tables: dict[str, Ints]) -> None:
        """A stage whose output is the image reserved last."""
        assert not self._stages or kind == LINEAR or self._stages[-1]["kind"] != LINEAR
        stage = {"kind": kind, "y": self._start, "y_size": self._size} | fields
        for field, table in tables.items():
            stage[field] = self._table_entries
            self._tables.append(table.ravel().astype(np.int32))
            self._table_entries += table.size
        self._stages.append(stage)

    def _windows(self, kernel: Any, stride: Any) -> tuple[Ints, Ints, Ints]:
        """Where windows begin (height, width), what is in one (kernel height, kernel width), where channels begin."""
        channels, height, width = self._offsets.shape
        padded_height, padded_width = height + 2 * self._pad_y, width + 2 * self._pad_x
        y, x = np.ogrid[: padded_height - kernel[0] + 1 : stride[0], : padded_width - kernel[1] + 1 : stride[1]]
        dy, dx = np.ogrid[: kernel[0], : kernel[1]]
        starts, window = SIMD_WIDTH * (y * self._line + x), SIMD_WIDTH * (dy * self._line + dx)
        return starts, window, SIMD_WIDTH * self._plane * np.arange(channels)

    def _input(self) -> dict[str, int]:
        """The image reserved last, as the input of a stage."""
        return {"x": self._start, "x_size": self._size}

    def _output_offsets(self) -> Ints:
        """Where each channel's number is, from the first channel's at the same position."""
        return self._offsets[:, 0, 0] - self._offsets[0, 0, 0]

    def _add_convolution(self, layer: nn.Conv2d, then: Sequence[nn.Module]) -> None:
        starts, window, channels = self._windows(layer.kernel_size, layer.stride)
        fields, taps, pixels = self._input(), channels[:, None, None] + window, self._offsets[0].ravel()
        self._reserve((layer.out_channels, *starts.shape), then)
        positions = self._offsets[0].ravel()
        fused = self._fused_windows(then[0]) if then else _NONE
        if fused.size:
            fields |= {"fused_pool": 1}
            starts, positions = starts.ravel()[fused], positions[fused]
        fields |= {"positions": positions.size}
        tables = {"x_window_table": starts, "x_tap_table": taps, "y_position_table": positions}
        overlap = layer.kernel_size[0] > layer.stride[0] or layer.kernel_size[1] > layer.stride[1]
        few_weights = layer.out_channels * window.size <= _MOST_WEIGHTS
        if not AVX512 and overlap and len(channels) >= _LEAST_CHANNELS and few_weights:
            fields |= {"gather_channels": len(channels), "gather_pixels": pixels.size}
            tables |= {"gather_channel_table": channels, "gather_pixel_table": pixels}
            tables |= _gather_tables(pixels, starts, window, positions)
        self._add_weights(CONVOLUTION, layer.out_channels, fields, tables)

    def _fused_windows(self, pool: nn.Module) -> Ints:
        """(windows, 4) output positions, if this is a pooling of four each that do not overlap; else nothing."""
        if type(pool) is not nn.MaxPool2d:
            return _NONE
        kernel, stride = pair(pool.kernel_size), pair(pool.stride)
        starts, window, _ = self._windows(kernel, stride)
        if window.size != 4 or kernel[0] > stride[0] or kernel[1] > stride[1]:
            return _NONE
        return (starts.reshape(-1, 1) + window.ravel()) // SIMD_WIDTH  # pooling has no border

    def _add_linear(self, layer: nn.Linear, then: Sequence[nn.Module]) -> None:
        fields, taps = self._input() | {"positions": 1}, self._offsets
        self._reserve((layer.out_features, 1, 1), [])
        self._add_weights(LINEAR, layer.out_features, fields, {"x_tap_table": taps})

    def _add_weights(self, kind: int, outputs: int, fields: dict[str, int], tables: dict[str, Ints]) -> None:
        """A convolution or a linear layer, with its weights and biases.

        Rows of weights are padded to an odd number of vectors, so that they do not compete for cache lines.
        """
        taps = tables["x_tap_table"].size
        stride = (-(-taps // SIMD_WIDTH) | 1) * SIMD_WIDTH
        bias = self._weights_size + outputs * stride
        rows = stride * np.arange(outputs)
        self._weight_positions.append((self._weights_size + rows[:, None] + np.arange(taps)).ravel())
        self._weight_positions.append(bias + np.arange(outputs))
        fields = fields | {"outputs": outputs, "taps": taps}
        fields |= {"weights": self._weights_size, "weight_stride": stride, "bias": bias}
        tables = tables | {"y_output_table": self._output_offsets()}
        if kind == LINEAR:
            tables |= {"gradient_block_table": np.arange(0, stride, SIMD_WIDTH), "gradient_row_table": rows}
            tables |= {"gradient_sample_table": stride * np.arange(SIMD_WIDTH)}
            self._deinterleaved_size = max(self._deinterleaved_size, SIMD_WIDTH * stride)
        self._add_stage(kind, fields, tables)
        self._weights_size = bias + -(-outputs // SIMD_WIDTH) * SIMD_WIDTH

    def _add_pool(self, layer: nn.MaxPool2d, then: Sequence[nn.Module]) -> None:
        starts, window, channels = self._windows(pair(layer.kernel_size), pair(layer.stride))
        windows = channels[:, None, None] + starts
        fields = self._input() | {"positions": windows.size, "taps": window.size}
        self._reserve((len(channels), *starts.shape), then)
        tables = {"x_window_table": windows, "x_tap_table": window, "y_position_table": self._offsets}
        self._add_stage(POOL, fields, tables | {"y_output_table": self._output_offsets()})

    def _add_relu(self, layer: nn.ReLU, then: Sequence[nn.Module]) -> None:
        self._stages[-1]["relu"] = 1

    def _add_flatten(self, layer: nn.Flatten, then: Sequence[nn.Module]) -> None:
        self._offsets = self._offsets.reshape(-1, 1, 1)


def _gather_tables(pixels: Ints, starts: Ints, window: Ints, positions: Ints) -> dict[str, Ints]:
    """For each pixel of a convolution's input a list: the output positions whose windows contain it, and by which tap.

    Args:
        pixels: offsets of the pixels of one channel.
        starts: (positions,) where windows begin.
        window: what is in one, from there.
        positions: offsets of the output positions.
    """
    contents = starts.reshape(-1, 1) + window.ravel()  # (positions, taps): which pixel it is
    order = np.argsort(contents, axis=None, kind="stable")
    inside = np.isin(contents.ravel()[order], pixels)  # not in the border
    position, tap = np.divmod(order[inside], window.size)
    lists = np.append(np.searchsorted(contents[position, tap], pixels), position.size)
    return {
        "gather_list_table": lists,
        "gather_position_table": positions.ravel()[position],
        "gather_tap_table": tap,
    }


def _zeros(size: int, dtype: torch.dtype = torch.float32) -> Any:
    """An array that begins where a cache line does, as PyTorch's do and numpy's do not."""
    return torch.zeros(size, dtype=dtype).numpy()
