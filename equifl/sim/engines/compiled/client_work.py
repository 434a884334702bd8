"""What the engine does for one client (local SGD, a gradient, a loss, predictions), as one compiled function."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from equifl.sim.engines.compiled.compile_cache import compiled
from equifl.sim.engines.compiled.kernels import backward, forward, load
from equifl.sim.engines.compiled.memory_layout import SIMD_WIDTH, TILES

TRAIN, GRADIENT, LOSS, PREDICT = range(4)  # jobs


@compiled
def work(job, network, workspace, x, y, weights, examples, out, lr, momentum, weight_decay, prox):
    """One job for one model, without the interpreter's lock: (loss, steps taken).

    Nothing is checked here: an offset that is wrong reads or writes memory that belongs to others. `CompiledEngine`
    checks what it is given.

    Args:
        job: TRAIN on batches (steps, batch); GRADIENT, LOSS or PREDICT of examples (1, n).
        network: a `NetworkLayout`.
        workspace: a `Workspace` that no other thread uses.
        x: (n, inputs) all examples, float32.
        y: (n,) their labels, int64.
        weights: (d,) the model's, float32.
        examples: positions in x and y, int64; negative = none.
        out: float32, filled with the trained weights (d,), the gradient (d,) or the predicted classes (n,); LOSS
            leaves it alone.
        lr: of TRAIN, as are the next three.
        momentum: of SGD, without dampening.
        weight_decay: times the weights is added to the gradient.
        prox: times what the weights have moved from the given ones is added to the gradient.
    """
    positions = network.weight_positions
    for i in range(len(positions)):
        workspace.weights[positions[i]] = weights[i]
    if job == PREDICT:
        _predict(network, workspace, x, examples[0], out)
        return 0.0, 0
    if job == TRAIN:
        loss, steps = _train(job, network, workspace, x, y, examples, lr, momentum, weight_decay, prox)
    else:
        loss, steps = _mean_loss(job, network, workspace, x, y, examples[0]), 0
    if job != LOSS:
        result = workspace.weights if job == TRAIN else workspace.weights_gradient
        for i in range(len(positions)):
            out[i] = result[positions[i]]
    return loss, steps


@njit(nogil=True)
def _train(job, network, workspace, x, y, batches, lr, momentum, weight_decay, prox):
    """Local SGD: the loss of the last batch, and the steps taken; a batch without examples is skipped."""
    weights, gradient, velocity = workspace.weights, workspace.weights_gradient, workspace.velocity
    rate, kept, decay, mu = np.float32(lr), np.float32(momentum), np.float32(weight_decay), np.float32(prox)
    received = weights.copy() if mu > 0 else weights[:0]
    velocity[:] = 0
    loss, steps = 0.0, 0
    for i in range(len(batches)):
        batch = batches[i]
        if np.any(batch >= 0):
            loss, steps = _mean_loss(job, network, workspace, x, y, batch), steps + 1
            for j in range(len(received)):
                gradient[j] += mu * (weights[j] - received[j])
            for j in range(len(weights)):
                velocity[j] = kept * velocity[j] + gradient[j] + decay * weights[j]
                weights[j] -= rate * velocity[j]
    return loss, steps


@njit(nogil=True)
def _mean_loss(job, network, workspace, x, y, examples):
    """The mean loss over the examples; its gradient, unless the job is LOSS, goes into the workspace."""
    if job != LOSS:
        workspace.weights_gradient[:] = 0
    share, total, start = 1 / max(1, np.sum(examples >= 0)), 0.0, np.int64(0)
    while True:
        tiles, start = _load_tiles(network, workspace, x, examples, start)
        if not tiles:
            return total * share
        forward(network, workspace, tiles)
        for tile in range(tiles):
            total += _cross_entropy(network, workspace, y, tile, share)
        if job != LOSS:
            backward(network, workspace, tiles)


@njit(nogil=True)
def _predict(network, workspace, x, examples, out):
    """The most likely class of each example."""
    last, tables, start, done = network.plan[-1], network.tables, np.int64(0), 0
    while True:
        tiles, start = _load_tiles(network, workspace, x, examples, start)
        if not tiles:
            return
        forward(network, workspace, tiles)
        for tile in range(tiles):
            logits = workspace.activations[tile * network.tile_size + last.y :]
            for sample in range(workspace.filled[tile]):
                best = 0
                for row in range(1, last.outputs):
                    logit = logits[tables[last.y_output_table + row] + sample]
                    largest = logits[tables[last.y_output_table + best] + sample]
                    best = row if logit > largest else best
                out[done] = best
                done += 1


@njit(nogil=True)
def _load_tiles(network, workspace, x, examples, start):
    """Load the next examples, up to 16 a tile: how many tiles have any, and where to go on in `examples`.

    Slots without an example repeat the tile's first, and count for nothing.
    """
    first, rows, filled = network.plan[0], workspace.examples, workspace.filled
    offsets = network.tables[first.y_output_table : first.y_output_table + first.taps]
    for tile in range(TILES):
        filled[tile] = 0
        while filled[tile] < SIMD_WIDTH and start < len(examples):
            if examples[start] >= 0:
                rows[tile, filled[tile]] = examples[start]
                filled[tile] += 1
            start += 1
        if not filled[tile]:
            return tile, start
        rows[tile, filled[tile] :] = rows[tile, 0]
        load(offsets, workspace.activations[tile * network.tile_size + first.y :], x, rows[tile])
    return TILES, start


@njit(nogil=True)
def _cross_entropy(network, workspace, y, tile, share):
    """The sum of the losses of a tile's examples; the gradients of `share` times it go into the workspace."""
    last, tables, rows = network.plan[-1], network.tables, workspace.examples[tile]
    activations = workspace.activations[tile * network.tile_size :]
    gradients = workspace.gradients[tile * network.tile_size :]
    total = 0.0
    for sample in range(SIMD_WIDTH):
        largest = np.float32(-np.inf)
        for row in range(last.outputs):
            largest = max(largest, activations[last.y + tables[last.y_output_table + row] + sample])
        norm = np.float32(0)
        for row in range(last.outputs):
            at = last.y + tables[last.y_output_table + row] + sample
            gradients[at] = math.exp(activations[at] - largest)
            norm += gradients[at]
        counts = sample < workspace.filled[tile]
        scale = np.float32(share / norm) if counts else np.float32(0)
        for row in range(last.outputs):
            gradients[last.y + tables[last.y_output_table + row] + sample] *= scale
        if counts:
            at = last.y + tables[last.y_output_table + y[rows[sample]]] + sample
            gradients[at] -= np.float32(share)
            total += math.log(norm) + (largest - activations[at])
    return total
