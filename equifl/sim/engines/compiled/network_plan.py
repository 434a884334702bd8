"""Where the numbers of a network lie: a plan, a row a stage, and tables of offsets, for the kernels to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from equifl.signals import Ints
from equifl.sim.engines.compiled import kernels
from equifl.sim.engines.compiled.llvm import LANES, WIDE
from equifl.sim.models.tracing import pair
from equifl.sim.models.zoo import Shape

_NONE = np.zeros(0, np.int64)
_FEW = 4  # channels of an input: with fewer, the way back by lists leaves registers empty
_MANY = 640  # weights of one of them: with more, those of six do not stay in the nearest cache


class Network:
    """A network laid out: activations, weights and tables each in one array, end to end.

    Attributes:
        layout: what the kernels read: the plan, its tables, and where each of the module's weights goes.
        inputs: where each number of what goes in lies.
        outputs: and of what comes out.
        sizes: how many numbers, and how many weights, there is to be room for.
    """

    def __init__(self, layers: Sequence[nn.Module], shape: Shape) -> None:
        self._stages: list[dict[int, int]] = []
        self._tables: list[Ints] = []
        self._where: list[Ints] = []
        self._entries = self._numbers = self._weights = self._turned = 0
        self._places: Ints  # of the numbers of the layer before, (channels, height, width), from where that begins
        self._reserve(shape if len(shape) == 3 else (*shape, 1, 1), layers)
        self._stage(kernels.INPUT, {kernels.TERMS: self._places.size}, {kernels.Y_ROWS: self._places})
        add: dict[type, Callable[[Any, Sequence[nn.Module]], None]]
        add = {nn.Conv2d: self._convolution, nn.Linear: self._linear, nn.MaxPool2d: self._pool, nn.ReLU: self._relu}
        for i, layer in enumerate(layers):
            if type(layer) is nn.Flatten:
                self._places = self._places.reshape(-1, 1, 1)
            else:
                add[type(layer)](layer, layers[i + 1 :])
        tiles = {kernels.X_SPOTS: self._entries, kernels.Y_SPOTS: self._entries}  # the spots of linear layers
        self._tables.append(self._numbers * np.arange(kernels.TILES))
        self._stages[0][kernels.X_SIZE] = self._numbers
        plan = np.zeros((len(self._stages), kernels.COLUMNS), np.int64)
        for row, stage in zip(plan, self._stages, strict=True):
            stage |= tiles if stage[kernels.KIND] == kernels.LINEAR else {}
            row[list(stage)] = list(stage.values())
        self.layout = plan, np.concatenate(self._tables).astype(np.int32), np.concatenate([_NONE, *self._where])
        self.sizes = self._numbers, self._weights
        self.inputs, self.outputs = self._tables[0], (self._at + self._places).ravel().astype(np.int32)
        self._tables.clear()  # there is a copy of them, end to end

    def desk(self) -> tuple[Any, ...]:
        """What one thread works on.

        Weights, gradient, velocity; of some tiles activations, slopes; of one inputs, turned; picks, which rows are in
        the tiles, and how many.
        """
        numbers = kernels.TILES * self._numbers
        sizes = [self._weights] * 3 + [numbers] * 2 + [self._turned]
        floats = [torch.zeros(size).numpy() for size in sizes]  # PyTorch's arrays begin where a cache line does
        rows, filled = np.zeros((kernels.TILES, LANES), np.int64), np.zeros(kernels.TILES, np.int64)
        return *floats, torch.zeros(numbers, dtype=torch.int32).numpy(), rows, filled

    def _reserve(self, shape: Shape, consumers: Sequence[nn.Module]) -> None:
        """Room for an image, with a border of zeros if the next layer wants one."""
        user = next((layer for layer in consumers if type(layer) is not nn.ReLU), None)
        self._high, self._wide = map(int, user.padding) if isinstance(user, nn.Conv2d) else (0, 0)
        channels, height, width = shape
        self._line = width + 2 * self._wide
        self._plane = (height + 2 * self._high) * self._line | 1  # odd, so that planes do not compete for cache lines
        c, y, x = np.ogrid[:channels, :height, :width]
        self._places = LANES * (c * self._plane + (y + self._high) * self._line + x + self._wide)
        self._at, self._size = self._numbers, LANES * channels * self._plane
        self._numbers += self._size

    def _stage(self, kind: int, sizes: dict[int, int], tables: dict[int, Ints]) -> None:
        assert not self._stages or kind == kernels.LINEAR or self._stages[-1][kernels.KIND] != kernels.LINEAR
        stage = {kernels.KIND: kind, kernels.Y: self._at, kernels.Y_SIZE: self._size} | sizes
        for column, table in tables.items():
            stage[column] = self._entries
            self._tables.append(table.ravel().astype(np.int32))
            self._entries += table.size
        self._stages.append(stage)

    def _windows(self, kernel: Any, stride: Any) -> tuple[Ints, Ints, Ints]:
        """Where windows begin, (height, width); what is in one, (kernel height, kernel width); where planes begin."""
        channels, height, width = self._places.shape
        high, wide = height + 2 * self._high, width + 2 * self._wide
        y, x = np.ogrid[: high - kernel[0] + 1 : stride[0], : wide - kernel[1] + 1 : stride[1]]
        dy, dx = np.ogrid[: kernel[0], : kernel[1]]
        return LANES * (y * self._line + x), LANES * (dy * self._line + dx), LANES * self._plane * np.arange(channels)

    def _from(self) -> dict[int, int]:
        return {kernels.X: self._at, kernels.X_SIZE: self._size}

    def _convolution(self, layer: nn.Conv2d, then: Sequence[nn.Module]) -> None:
        starts, window, planes = self._windows(layer.kernel_size, layer.stride)
        source, terms, places = self._from(), planes[:, None, None] + window, self._places[0].ravel()
        self._reserve((layer.out_channels, *starts.shape), then)
        spots = self._places[0].ravel()
        windows = self._windows_of(then[0]) if then else _NONE
        if windows.size:
            source |= {kernels.POOLED: 1}
            starts, spots = starts.ravel()[windows], spots[windows]
        source |= {kernels.SPOTS: spots.size}
        tables = {kernels.X_SPOTS: starts, kernels.X_TERMS: terms, kernels.Y_SPOTS: spots}
        overlap = layer.kernel_size[0] > layer.stride[0] or layer.kernel_size[1] > layer.stride[1]
        if not WIDE and overlap and len(planes) >= _FEW and layer.out_channels * window.size <= _MANY:
            source |= {kernels.CHANNELS: len(planes), kernels.PLACES: places.size}
            tables |= {kernels.X_PLANES: planes, kernels.X_PLACES: places}
            tables |= _listed(places, starts, window, spots)
        self._dense(kernels.CONVOLUTION, layer.out_channels, source, tables)

    def _windows_of(self, pool: nn.Module) -> Ints:
        """Which spots of a plane are in the windows of a pooling, if these have four spots, and no spot is in two."""
        if type(pool) is not nn.MaxPool2d:
            return _NONE
        kernel, stride = pair(pool.kernel_size), pair(pool.stride)
        starts, window, _ = self._windows(kernel, stride)
        if window.size != 4 or kernel[0] > stride[0] or kernel[1] > stride[1]:
            return _NONE
        return (starts.reshape(-1, 1) + window.ravel()) // LANES  # there is no border

    def _linear(self, layer: nn.Linear, then: Sequence[nn.Module]) -> None:
        source, terms = self._from() | {kernels.SPOTS: 1}, self._places
        self._reserve((layer.out_features, 1, 1), [])
        self._dense(kernels.LINEAR, layer.out_features, source, {kernels.X_TERMS: terms})

    def _dense(self, kind: int, rows: int, source: dict[int, int], tables: dict[int, Ints]) -> None:
        """Weights and biases of a convolution or a linear layer; the rows of weights filled up to whole registers.

        An odd number of them, so that rows do not compete for cache lines.
        """
        terms = tables[kernels.X_TERMS].size
        row = (-(-terms // LANES) | 1) * LANES
        bias = self._weights + rows * row
        self._where.append((self._weights + row * np.arange(rows)[:, None] + np.arange(terms)).ravel())
        self._where.append(bias + np.arange(rows))
        sizes = {kernels.ROWS: rows, kernels.TERMS: terms}
        weights = {kernels.W: self._weights, kernels.W_ROW: row, kernels.BIAS: bias}
        outputs = {kernels.Y_ROWS: self._places[:, 0, 0] - self._places[0, 0, 0]}
        if kind == kernels.LINEAR:
            outputs |= {kernels.W_SPOTS: np.arange(0, row, LANES), kernels.W_ROWS: row * np.arange(rows)}
            outputs |= {kernels.W_TERMS: row * np.arange(LANES)}
            self._turned = max(self._turned, LANES * row)
        self._stage(kind, source | sizes | weights, tables | outputs)
        self._weights = bias + -(-rows // LANES) * LANES

    def _pool(self, layer: nn.MaxPool2d, then: Sequence[nn.Module]) -> None:
        starts, window, planes = self._windows(pair(layer.kernel_size), pair(layer.stride))
        source, spots = self._from(), planes[:, None, None] + starts
        self._reserve((len(planes), *starts.shape), then)
        tables = {kernels.X_SPOTS: spots, kernels.X_TERMS: window, kernels.Y_SPOTS: self._places}
        tables |= {kernels.Y_ROWS: self._places[:, 0, 0] - self._places[0, 0, 0]}
        self._stage(kernels.POOL, source | {kernels.SPOTS: spots.size, kernels.TERMS: window.size}, tables)

    def _relu(self, layer: nn.ReLU, then: Sequence[nn.Module]) -> None:
        self._stages[-1][kernels.RELU] = 1


def _listed(places: Ints, starts: Ints, window: Ints, spots: Ints) -> dict[int, Ints]:
    """For each place of a convolution's input the spots whose windows it is in, and where in the window it is."""
    place = starts.reshape(-1, 1) + window.ravel()  # (spots, window): what each looks at
    order = np.argsort(place, axis=None, kind="stable")
    spot, term = np.divmod(order[np.isin(place.ravel()[order], places)], window.size)  # without those in the border
    lists = np.append(np.searchsorted(place[spot, term], places), spot.size)
    return {kernels.LISTS: lists, kernels.Y_LISTED: spots.ravel()[spot], kernels.W_LISTED: term}
