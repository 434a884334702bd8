"""The fast engine's work on one client: local training, gradient, loss or classes, compiled by numba as one entry."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from equifl.sim.engines.compiled.compile_cache import compiled
from equifl.sim.engines.compiled.kernels import ROWS, TERMS, TILES, X_SIZE, Y_ROWS, Y, backward, forward, load
from equifl.sim.engines.compiled.llvm import LANES

TRAIN, GRADIENT, LOSS, PREDICT = range(4)  # what can be asked for


@njit(nogil=True)
def _load_tiles(s, tables, acts, x, examples, start, rows, filled):
    """The next examples that are there, up to sixteen a tile; how many tiles, and where to go on.

    Lanes without one repeat the tile's first, which then counts for nothing.
    """
    places = tables[s[Y_ROWS] : s[Y_ROWS] + s[TERMS]]
    for tile in range(TILES):
        filled[tile] = 0
        while filled[tile] < LANES and start < len(examples):
            if examples[start] >= 0:
                rows[tile, filled[tile]] = examples[start]
                filled[tile] += 1
            start += 1
        if not filled[tile]:
            return tile, start
        rows[tile, filled[tile] :] = rows[tile, 0]
        load(places, acts[tile * s[X_SIZE] + s[Y] :], x, rows[tile])
    return TILES, start


@njit(nogil=True)
def _cross_entropy(s, tables, acts, slopes, y, rows, filled, share):
    """The sum of the losses of a tile's examples, and the slopes of `share` of it."""
    total = 0.0
    for lane in range(LANES):
        most = np.float32(-np.inf)
        for row in range(s[ROWS]):
            most = max(most, acts[s[Y] + tables[s[Y_ROWS] + row] + lane])
        norm = np.float32(0)
        for row in range(s[ROWS]):
            at = s[Y] + tables[s[Y_ROWS] + row] + lane
            slopes[at] = math.exp(acts[at] - most)
            norm += slopes[at]
        there = lane < filled
        scale = np.float32(share / norm) if there else np.float32(0)
        for row in range(s[ROWS]):
            slopes[s[Y] + tables[s[Y_ROWS] + row] + lane] *= scale
        if there:
            at = s[Y] + tables[s[Y_ROWS] + y[rows[lane]]] + lane
            slopes[at] -= np.float32(share)
            total += math.log(norm) + (most - acts[at])
    return total


@njit(nogil=True)
def _mean_loss(job, network, desk, x, y, examples):
    """Over the examples that are there; unless that is the job, also its gradient, into the desk's."""
    plan, tables, _ = network
    params, gradient, _, acts, slopes, turned, pick, rows, filled = desk
    if job != LOSS:
        gradient[:] = 0
    share, total, start, room = 1 / max(1, np.sum(examples >= 0)), 0.0, np.int64(0), plan[0][X_SIZE]
    while True:
        tiles, start = _load_tiles(plan[0], tables, acts, x, examples, start, rows, filled)
        if not tiles:
            return total * share
        forward(plan, tables, params, acts, pick, tiles)
        for tile in range(tiles):
            values, down = acts[tile * room :], slopes[tile * room :]
            total += _cross_entropy(plan[-1], tables, values, down, y, rows[tile], filled[tile], share)
        if job != LOSS:
            backward(plan, tables, params, gradient, acts, slopes, pick, turned, False, tiles)


@njit(nogil=True)
def _train(job, network, desk, x, y, batches, options):
    """Local SGD: the loss of the last batch, and the steps taken; a batch of nobody is none."""
    params, gradient, velocity = desk[:3]
    lr, momentum, decay = np.float32(options[0]), np.float32(options[1]), np.float32(options[2])
    velocity[:] = 0
    loss, steps = 0.0, 0
    for i in range(len(batches)):
        batch = batches[i]
        if np.any(batch >= 0):
            loss, steps = _mean_loss(job, network, desk, x, y, batch), steps + 1
            for j in range(len(params)):
                velocity[j] = momentum * velocity[j] + gradient[j] + decay * params[j]
                params[j] -= lr * velocity[j]
    return loss, steps


@njit(nogil=True)
def _predict(network, desk, x, examples, found):
    """The class that each example most likely has."""
    plan, tables, _ = network
    params, _, _, acts, _, _, pick, rows, filled = desk
    last, start, room, done = plan[-1], np.int64(0), plan[0][X_SIZE], 0
    while True:
        tiles, start = _load_tiles(plan[0], tables, acts, x, examples, start, rows, filled)
        if not tiles:
            return
        forward(plan, tables, params, acts, pick, tiles)
        for tile in range(tiles):
            values = acts[tile * room + last[Y] :]
            for lane in range(filled[tile]):
                best = 0
                for row in range(1, last[ROWS]):
                    value, most = values[tables[last[Y_ROWS] + row] + lane], values[tables[last[Y_ROWS] + best] + lane]
                    best = row if value > most else best
                found[done] = best
                done += 1


@compiled
def work(job, network, desk, x, y, weights, examples, options, found):
    """One task, without the interpreter's lock: a loss, and the steps taken.

    Args:
        job: TRAIN on batches (steps, batch); GRADIENT, LOSS or PREDICT of examples (1, n).
        network: plan, tables, where each weight goes.
        desk: arrays to work on, this thread's own.
        x: inputs.
        y: labels.
        weights: the model's.
        examples: positions in x and y, -1 = none.
        options: learning rate, momentum and weight decay.
        found: trained weights, gradient, or classes.
    """
    where, params, gradient = network[2], desk[0], desk[1]
    for i in range(len(where)):
        params[where[i]] = weights[i]
    if job == PREDICT:
        _predict(network, desk, x, examples[0], found)
        return 0.0, 0
    if job == TRAIN:
        loss, steps = _train(job, network, desk, x, y, examples, options)
    else:
        loss, steps = _mean_loss(job, network, desk, x, y, examples[0]), 0
    if job != LOSS:
        wanted = params if job == TRAIN else gradient
        for i in range(len(where)):
            found[i] = wanted[where[i]]
    return loss, steps
