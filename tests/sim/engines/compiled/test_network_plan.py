"""The plan and tables of a network lead to the right numbers, and never outside of the arrays."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.nn.functional import pad, unfold

pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'equifl[fast]'")

from equifl.signals import Ints
from equifl.sim.engines.compiled.memory_layout import (
    CONVOLUTION,
    INPUT,
    LINEAR,
    POOL,
    SIMD_WIDTH,
    TILES,
    NetworkLayout,
)
from equifl.sim.engines.compiled.network_plan import Network, _gather_tables
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.zoo import Shape
from tests.sim.engines.compiled.test_engine import networks


def table(layout: NetworkLayout, stage: np.void, field: str, size: int) -> Ints:
    """A table of a stage, which must be within the array of all tables."""
    start = int(stage[field])
    assert 0 <= start <= len(layout.tables) - size
    return layout.tables[start : start + size].astype(np.int64)


def inside(offsets: Ints, start: int, size: int) -> bool:
    """Whether the vectors at these offsets are within what is reserved."""
    return bool(start <= offsets.min() and offsets.max() + SIMD_WIDTH <= start + size)


def test_a_stage_for_each_layer_with_its_sizes() -> None:
    layers = [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(36, 4)]
    plan = Network(layers, (2, 5, 4)).layout.plan
    assert plan["kind"].tolist() == [INPUT, CONVOLUTION, POOL, LINEAR]
    assert plan["relu"].tolist() == [0, 1, 0, 0]
    assert plan["fused_pool"].tolist() == [0, 0, 0, 0]
    assert plan["positions"].tolist() == [0, 5 * 4, 3 * 4 * 3, 1]
    assert plan["outputs"].tolist() == [0, 3, 0, 4]
    assert plan["taps"].tolist() == [2 * 5 * 4, 2 * 3 * 3, 2 * 2, 36]
    assert plan["x"].tolist()[1:] == plan["y"].tolist()[:-1]


@pytest.mark.parametrize(
    ("pool", "fused"),
    [(nn.MaxPool2d(2), 1), (nn.MaxPool2d((4, 1)), 1), (nn.MaxPool2d(2, 1), 0), (nn.MaxPool2d(3), 0)],
    ids=str,
)
def test_a_pooling_of_four_that_does_not_overlap_is_fused(pool: nn.MaxPool2d, fused: int) -> None:
    layers = [nn.Conv2d(1, 2, 3), pool, nn.Flatten()]
    width = nn.Sequential(*layers)(torch.zeros(1, 1, 10, 10)).shape[1]
    plan = Network([*layers, nn.Linear(width, 4)], (1, 10, 10)).layout.plan
    assert plan["fused_pool"].tolist() == [0, fused, 0, 0]


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), ((1, 3), (2, 0))])
def test_windows_and_taps_are_the_patches_of_an_image(stride: int, padding: int) -> None:
    convolution = nn.Conv2d(2, 3, (3, 2), stride, padding)
    width = convolution(torch.zeros(1, 2, 6, 7)).numel()
    layout = Network([convolution, nn.Flatten(), nn.Linear(width, 4)], (2, 6, 7)).layout
    first, stage = layout.plan[:2]
    image = torch.arange(1.0, 1 + 2 * 6 * 7).view(1, 2, 6, 7)
    memory = np.zeros(layout.tile_size)
    memory[first["y"] + table(layout, first, "y_output_table", image.numel())] = image.ravel()
    windows = table(layout, stage, "x_window_table", stage["positions"])
    taps = table(layout, stage, "x_tap_table", stage["taps"])
    high, wide = map(int, convolution.padding)
    patches = unfold(pad(image, (wide, wide, high, high)), (3, 2), stride=convolution.stride)
    assert memory[stage["x"] + windows[:, None] + taps].tolist() == patches[0].T.tolist()


@settings(deadline=None, max_examples=60)
@given(networks())
def test_nothing_leads_out_of_the_arrays(network: tuple[Shape, list[nn.Module]]) -> None:
    shape, layers = network
    model = StackedModel.of(nn.Sequential(*layers), shape)
    laid_out = Network(model.layers, shape)
    layout, workspace = laid_out.layout, laid_out.workspace()
    assert len(workspace.activations) == len(workspace.gradients) == len(workspace.argmax) == TILES * layout.tile_size
    assert len(layout.weight_positions) == len(set(layout.weight_positions)) == model.parameters
    end = 0
    for stage in layout.plan:
        assert stage["y"] == end  # images lie end to end
        end += stage["y_size"]
        if stage["kind"] == INPUT:
            assert inside(stage["y"] + table(layout, stage, "y_output_table", stage["taps"]), stage["y"], end)
            continue
        positions = 1 if stage["kind"] == LINEAR else int(stage["positions"])  # of a linear layer these are the tiles
        windows = table(layout, stage, "x_window_table", positions)
        taps = table(layout, stage, "x_tap_table", stage["taps"])
        assert inside(stage["x"] + windows[:, None] + taps, stage["x"], stage["x_size"])
        outputs = table(layout, stage, "y_output_table", stage["outputs"])
        at = table(layout, stage, "y_position_table", positions)[:, None] + (outputs if len(outputs) else 0)
        assert inside(stage["y"] + at, stage["y"], stage["y_size"])
        assert at.size == np.unique(at).size
        if stage["outputs"]:
            assert stage["weights"] + stage["outputs"] * stage["weight_stride"] <= stage["bias"]
            assert stage["bias"] + stage["outputs"] <= len(workspace.weights)
        if stage["kind"] == LINEAR:
            assert SIMD_WIDTH * stage["weight_stride"] <= len(workspace.deinterleaved)
            assert stage["weight_stride"] >= -(-stage["taps"] // SIMD_WIDTH) * SIMD_WIDTH
    assert end == layout.tile_size


def test_each_pixel_has_a_list_of_the_windows_that_contain_it() -> None:
    rng = np.random.default_rng(0)
    starts, window, pixels = np.arange(0, 40, 3), np.array([0, 1, 5, 6]), np.arange(4, 44)
    positions = 100 + rng.permutation(len(starts))
    tables = _gather_tables(pixels, starts, window, positions)
    lists = tables["gather_list_table"]
    for i, pixel in enumerate(pixels):
        part = slice(lists[i], lists[i + 1])
        found = zip(tables["gather_position_table"][part], tables["gather_tap_table"][part], strict=True)
        expected = [
            (position, tap)
            for position, start in zip(positions, starts, strict=True)
            for tap in range(4)
            if start + window[tap] == pixel
        ]
        assert sorted(found) == sorted(expected)
