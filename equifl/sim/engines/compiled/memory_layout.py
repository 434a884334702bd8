"""What compiled code is given to work with: a network as records and tables, and a thread's arrays.

Offsets into activations and weights count floats. Those of activations are within one tile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIMD_WIDTH = 16  # samples in a tile, and floats in every vector of the loops
TILES = 2  # that go through linear layers together, so that each weight is read once for both

INPUT, CONVOLUTION, LINEAR, POOL = range(4)  # kinds of stages

# One layer. Where a field does not apply to a kind of stage, it is 0. A field `..._table` is the index in
# `NetworkLayout.tables` at which a table of offsets begins.
STAGE = np.dtype(
    [
        ("kind", np.int64),  # INPUT, CONVOLUTION, LINEAR or POOL
        ("relu", np.int64),  # 1 if a ReLU follows
        ("fused_pool", np.int64),  # 1 if the next stage is a pooling that is computed together with this convolution:
        # its windows have four positions each and do not overlap, and positions are ordered window by window
        # Where activations are, and how many floats are reserved for them, border included.
        ("x", np.int64),  # of the input, which is 0 for the first layer alone
        ("x_size", np.int64),
        ("y", np.int64),  # of the output
        ("y_size", np.int64),
        # How many there are.
        ("positions", np.int64),  # output positions: of a convolution in one channel, of a pooling in all; linear: 1
        ("outputs", np.int64),  # output channels of a convolution, output features of a linear layer
        ("taps", np.int64),  # inputs of one output: (channel, row, column) of a kernel, features, or a pooling window
        # Tables of offsets of activations.
        ("x_window_table", np.int64),  # of each output position: where its window begins, from x
        ("x_tap_table", np.int64),  # of each tap: where it is, from where the window begins
        ("y_position_table", np.int64),  # of each output position: where it is, from y
        ("y_output_table", np.int64),  # of each output (or channel): where it is, from the output position
        # Weights, a row an output. Rows are padded to whole vectors.
        ("weights", np.int64),  # where they begin
        ("weight_stride", np.int64),  # from one row to the next
        ("bias", np.int64),  # where the biases begin
        # Tables of offsets for the gradient of a linear layer's weights, which takes 16 weights as one vector.
        ("gradient_block_table", np.int64),  # of each 16 weights, from where the row begins
        ("gradient_row_table", np.int64),  # of each row, from `weights`
        ("gradient_sample_table", np.int64),  # of each sample's inputs in `Workspace.deinterleaved`
        # The backward pass to the input of a convolution, if it gathers what an input pixel gets from all windows that
        # contain it. Else `gather_channels` is 0, and each window adds to its pixels.
        ("gather_channels", np.int64),  # input channels
        ("gather_pixels", np.int64),  # input pixels of one channel, without the border
        ("gather_channel_table", np.int64),  # of each input channel: where it begins, from x
        ("gather_pixel_table", np.int64),  # of each pixel: where it is, from where the channel begins
        ("gather_list_table", np.int64),  # of each pixel: where its list begins in the next two; one more for the end
        ("gather_position_table", np.int64),  # listed: an output position, from y
        ("gather_tap_table", np.int64),  # listed: which weight of the kernel leads from it to the pixel
    ],
    align=True,
)


class NetworkLayout(NamedTuple):
    """A network as compiled code reads it.

    Attributes:
        plan: `STAGE` records: the input, then one for each layer.
        tables: the tables of offsets of all stages, end to end, int32.
        weight_positions: where each weight of the module goes in `Workspace.weights`, int64.
        tile_size: floats that the activations of one tile take.
    """

    plan: NDArray[np.void]
    tables: NDArray[np.int32]
    weight_positions: NDArray[np.int64]
    tile_size: int


class Workspace(NamedTuple):
    """The arrays that one thread works on.

    Attributes:
        weights: of the model, in padded rows.
        weights_gradient: of the loss with respect to them.
        velocity: the momentum of SGD.
        activations: of all layers, tile after tile.
        gradients: of the loss with respect to each of the activations.
        argmax: which tap of its window each pooled number is, int32, in the place of that number.
        deinterleaved: a linear layer's inputs of one tile, sample after sample.
        examples: (TILES, SIMD_WIDTH) which example is in each slot of each tile.
        filled: (TILES,) how many slots of each tile have an example of their own.
    """

    weights: NDArray[np.float32]
    weights_gradient: NDArray[np.float32]
    velocity: NDArray[np.float32]
    activations: NDArray[np.float32]
    gradients: NDArray[np.float32]
    argmax: NDArray[np.int32]
    deinterleaved: NDArray[np.float32]
    examples: NDArray[np.int64]
    filled: NDArray[np.int64]
