"""Forward and backward pass through all layers of a network, compiled by numba once for all networks.

All that is particular to a network is in its `NetworkLayout`, which `network_plan` makes; `memory_layout` says what
the fields of a stage mean.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from equifl.sim.engines.compiled import simd_loops as simd
from equifl.sim.engines.compiled.llvm import AVX512
from equifl.sim.engines.compiled.memory_layout import LINEAR, POOL, SIMD_WIDTH
from equifl.sim.engines.compiled.simd_products import ProductOperands, gathered_products, pooled_products, products

_EACH_SAMPLE = np.arange(SIMD_WIDTH, dtype=np.int64)


@njit(nogil=True)
def load(offsets, activations, x, tile):
    """Load a tile: for each sample a row of x, number `i` of which goes to the vector at `offsets[i]`."""
    blocks = len(offsets) // 8
    operands = simd.InterleaveOperands(blocks=blocks, row_length=len(offsets), y=0, y_table=0)
    simd.interleave(offsets, activations, x, tile, operands)
    for i in range(8 * blocks, len(offsets)):
        vector = activations[offsets[i] :][:SIMD_WIDTH]
        for sample in range(SIMD_WIDTH):
            vector[sample] = x[tile[sample], i]


@njit(nogil=True)
def forward(network, workspace, tiles):
    """Compute the activations of all stages, for tiles that are loaded."""
    plan, tables, weights = network.plan, network.tables, workspace.weights
    first_linear = _first_linear(plan)
    for tile in range(tiles):
        activations = workspace.activations[tile * network.tile_size :]
        argmax = workspace.argmax[tile * network.tile_size :]
        for i in range(1, first_linear):
            stage = plan[i]
            if stage.fused_pool:
                _convolution_and_pool(stage, plan[i + 1], tables, weights, activations, argmax)
            elif stage.kind != POOL:
                _dense(stage, stage.positions, tables, weights, activations)
            elif not plan[i - 1].fused_pool:
                simd.max_pool(tables, activations, argmax, activations, _pool_operands(stage, 0))
    for i in range(first_linear, len(plan)):
        _dense(plan[i], tiles, tables, weights, workspace.activations)


@njit(nogil=True)
def backward(network, workspace, tiles):
    """Add to the gradient of the weights, from the gradients of the last stage's outputs."""
    plan, tables, tile_size = network.plan, network.tables, network.tile_size
    weights, weights_gradient, first_linear = workspace.weights, workspace.weights_gradient, _first_linear(plan)
    for i in range(len(plan) - 1, first_linear - 1, -1):
        stage = plan[i]
        for tile in range(tiles):
            activations, gradients = workspace.activations[tile * tile_size :], workspace.gradients[tile * tile_size :]
            if stage.relu:
                _relu_backward(stage, activations, gradients)
            _linear_to_weights(stage, tables, weights_gradient, activations, gradients, workspace.deinterleaved)
        _to_biases(stage, tiles, tables, weights_gradient, workspace.gradients)
        if stage.x:  # not the first layer
            _dense_to_input(stage, tiles, tables, weights, workspace.gradients)
    for tile in range(tiles):
        # All tiles use the first tile's gradients, one after another, so that these stay in the cache.
        activations, argmax = workspace.activations[tile * tile_size :], workspace.argmax[tile * tile_size :]
        gradients = workspace.gradients
        if tile:
            start = plan[first_linear].x
            for i in range(start, start + plan[first_linear].x_size):
                gradients[i] = gradients[tile * tile_size + i]
        for i in range(first_linear - 1, 0, -1):
            stage = plan[i]
            if stage.relu:
                _relu_backward(stage, activations, gradients)
            if stage.kind == POOL:
                disjoint = plan[i - 1].fused_pool
                if not disjoint:
                    gradients[stage.x : stage.x + stage.x_size] = 0
                simd.max_pool_backward(tables, gradients, argmax, gradients, _pool_operands(stage, disjoint))
                continue
            _to_biases(stage, stage.positions, tables, weights_gradient, gradients)
            _convolution_to_weights(stage, tables, weights_gradient, activations, gradients)
            if stage.x:  # not the first layer
                _dense_to_input(stage, stage.positions, tables, weights, gradients)


@njit(nogil=True)
def _first_linear(plan):
    """The index of the first of the linear layers, which come last."""
    i = len(plan)
    while plan[i - 1].kind == LINEAR:
        i -= 1
    return i


@njit(nogil=True)
def _dense(stage, positions, tables, weights, activations):
    """Forward pass of a convolution or a linear layer: at every position, each row of weights times the taps."""
    row = 0
    while row < stage.outputs:
        operands = _forward_operands(stage, stage, positions, row)
        row += products(stage.outputs - row, tables, activations, activations, weights, operands)


@njit(nogil=True)
def _convolution_and_pool(stage, pool, tables, weights, activations, argmax):
    """Forward pass of a convolution and the pooling after it: what lies between them never leaves the registers."""
    row = 0
    while row < stage.outputs:
        operands = _forward_operands(stage, pool, stage.positions // 4, row)
        row += pooled_products(stage.outputs - row, tables, activations, argmax, weights, operands)


@njit(nogil=True)
def _forward_operands(stage, target, positions, row):
    """From a row of weights on, with the result where `target` has its outputs."""
    return ProductOperands(
        positions=positions,
        terms=stage.taps,
        y=target.y,
        y_position_table=target.y_position_table,
        y_row_table=target.y_output_table + row,
        x=stage.x,
        x_position_table=stage.x_window_table,
        x_term_table=stage.x_tap_table,
        w=stage.weights + row * stage.weight_stride,
        w_row_stride=stage.weight_stride,
        w_term_stride=1,
        bias=stage.bias + row,
        overwrite=1,
        relu=target.relu,
        gather_list_table=0,
        gather_shift_table=0,
    )


@njit(nogil=True)
def _pool_operands(stage, disjoint):
    return simd.PoolOperands(
        positions=stage.positions,
        taps=stage.taps,
        y=stage.y,
        y_position_table=stage.y_position_table,
        x=stage.x,
        x_window_table=stage.x_window_table,
        x_tap_table=stage.x_tap_table,
        relu=stage.relu,
        disjoint=disjoint,
    )


@njit(nogil=True)
def _relu_backward(stage, activations, gradients):
    """Set the gradients of a stage's outputs to 0 where the outputs are."""
    outputs = activations[stage.y : stage.y + stage.y_size]
    gradients_of_outputs = gradients[stage.y : stage.y + stage.y_size]
    for i in range(len(outputs)):
        gradients_of_outputs[i] = gradients_of_outputs[i] if outputs[i] > 0 else np.float32(0)


@njit(nogil=True)
def _to_biases(stage, positions, tables, weights_gradient, gradients):
    """Backward pass to the biases of a convolution or a linear layer."""
    operands = simd.RowSumOperands(
        rows=stage.outputs,
        positions=positions,
        y=stage.y,
        y_position_table=stage.y_position_table,
        y_row_table=stage.y_output_table,
        w=stage.bias,
    )
    simd.row_sums(tables, gradients, weights_gradient, weights_gradient, operands)


@njit(nogil=True)
def _dense_to_input(stage, positions, tables, weights, gradients):
    """Backward pass to the input of a convolution or a linear layer: the product with inputs and outputs exchanged.

    Windows overlap, so each adds to the pixels it contains. Where the plan has lists, it goes pixel by pixel instead,
    and gathers from all windows that contain it: sums stay in registers for longer.
    """
    if stage.kind == LINEAR:
        for position in range(positions):
            gradients[tables[stage.x_window_table + position] + stage.x :][: stage.x_size] = 0
    else:
        gradients[stage.x : stage.x + stage.x_size] = 0
    if not AVX512 and stage.gather_channels:
        _gather_to_input(stage, tables, weights, gradients)
        return
    tap = 0
    while tap < stage.taps:
        operands = ProductOperands(
            positions=positions,
            terms=stage.outputs,
            y=stage.x,
            y_position_table=stage.x_window_table,
            y_row_table=stage.x_tap_table + tap,
            x=stage.y,
            x_position_table=stage.y_position_table,
            x_term_table=stage.y_output_table,
            w=stage.weights + tap,
            w_row_stride=1,
            w_term_stride=stage.weight_stride,
            bias=0,
            overwrite=0,
            relu=0,
            gather_list_table=0,
            gather_shift_table=0,
        )
        tap += products(stage.taps - tap, tables, gradients, gradients, weights, operands)


@njit(nogil=True)
def _gather_to_input(stage, tables, weights, gradients):
    kernel_size = stage.taps // stage.gather_channels
    channel = 0
    while channel < stage.gather_channels:
        operands = ProductOperands(
            positions=stage.gather_pixels,
            terms=stage.outputs,
            y=stage.x,
            y_position_table=stage.gather_pixel_table,
            y_row_table=stage.gather_channel_table + channel,
            x=stage.y,
            x_position_table=stage.gather_position_table,
            x_term_table=stage.y_output_table,
            w=stage.weights + channel * kernel_size,
            w_row_stride=kernel_size,
            w_term_stride=stage.weight_stride,
            bias=0,
            overwrite=0,
            relu=0,
            gather_list_table=stage.gather_list_table,
            gather_shift_table=stage.gather_tap_table,
        )
        left = stage.gather_channels - channel
        channel += gathered_products(left, tables, gradients, gradients, weights, operands)


@njit(nogil=True)
def _convolution_to_weights(stage, tables, weights_gradient, activations, gradients):
    """Backward pass to the weights of a convolution: sums over positions and samples."""
    row = 0
    while row < stage.outputs:
        operands = simd.CorrelationOperands(
            positions=stage.positions,
            terms=stage.taps,
            y=stage.y,
            y_position_table=stage.y_position_table,
            y_row_table=stage.y_output_table + row,
            x=stage.x,
            x_position_table=stage.x_window_table,
            x_term_table=stage.x_tap_table,
            w=stage.weights + row * stage.weight_stride,
            w_row_stride=stage.weight_stride,
        )
        left = stage.outputs - row
        row += simd.correlations(left, tables, gradients, activations, weights_gradient, operands)


@njit(nogil=True)
def _linear_to_weights(stage, tables, weights_gradient, activations, gradients, deinterleaved):
    """Backward pass to the weights of a linear layer, from one tile.

    A sum over samples would cost more than its products. So the inputs are laid out sample by sample, and a vector is
    16 inputs of one sample: the gradient of a row of weights is then a product, whose terms are the samples.
    """
    deinterleaved[:] = 0
    blocks, stride = stage.taps // 8, stage.weight_stride
    layout = simd.InterleaveOperands(blocks=blocks, row_length=stride, y=stage.x, y_table=stage.x_tap_table)
    simd.deinterleave(tables, activations, deinterleaved, _EACH_SAMPLE, layout)
    for tap in range(8 * blocks, stage.taps):
        offset = stage.x + tables[stage.x_tap_table + tap]
        for sample in range(SIMD_WIDTH):
            deinterleaved[sample * stride + tap] = activations[offset + sample]
    row = 0
    while row < stage.outputs:
        operands = ProductOperands(
            positions=-(-stage.taps // SIMD_WIDTH),
            terms=SIMD_WIDTH,
            y=stage.weights,
            y_position_table=stage.gradient_block_table,
            y_row_table=stage.gradient_row_table + row,
            x=0,
            x_position_table=stage.gradient_block_table,
            x_term_table=stage.gradient_sample_table,
            w=stage.y + tables[stage.y_output_table + row],
            w_row_stride=SIMD_WIDTH,
            w_term_stride=1,
            bias=0,
            overwrite=0,
            relu=0,
            gather_list_table=0,
            gather_shift_table=0,
        )
        row += products(stage.outputs - row, tables, weights_gradient, deinterleaved, gradients, operands)
