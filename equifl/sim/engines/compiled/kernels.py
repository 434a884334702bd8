"""There and back through all layers of a network, compiled by numba for all networks at once.

All that is particular to a network is in its plan and its tables of offsets, which `network_plan` makes. The
samples of a tile lie innermost: number `i` of a layer is the sixteen floats from `16 * i` on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from equifl.sim.engines.compiled import simd_loops as sixteen
from equifl.sim.engines.compiled.llvm import LANES, WIDE

INPUT, CONVOLUTION, LINEAR, POOL = range(4)  # kinds of stages
TILES = 2  # that go through linear layers side by side, as the spots of these, so that weights are read once for both
# The columns of a plan, a row a stage: its kind, whether a ReLU follows, where it reads and writes (X, Y, and how much
# is reserved there), how many there are of what, and where its tables begin. W: weights, a row an output. The first
# row is the input, and its X_SIZE what a tile takes in all.
KIND, RELU, X, X_SIZE, Y, Y_SIZE, SPOTS, ROWS, TERMS = range(9)
X_SPOTS, X_TERMS, Y_SPOTS, Y_ROWS, W, W_ROW, BIAS, W_SPOTS, W_ROWS, W_TERMS = range(9, 19)
# The way back to the input of a convolution, where it goes by lists: its channels (else 0), its places, and for each
# of these the spots whose windows it is in (Y_LISTED), with where in the window it is (W_LISTED).
CHANNELS, PLACES, X_PLANES, X_PLACES, LISTS, Y_LISTED, W_LISTED = range(19, 26)
# Of a convolution: whether every four of its spots are a window of the pooling that follows, and no spot is in two.
POOLED, COLUMNS = range(26, 28)

_EACH = np.arange(LANES, dtype=np.int64)
_ROWS, _TERMS = (4, 5) if WIDE else (2, 6)  # of sums over lanes, at most


def _as_many_rows_as_fit(loops: Any, most: int = 6) -> Any:
    """Does the products of as many rows as fit into registers, and says how many those are."""
    many, four, two, one = (loops(rows) for rows in (most, 4, 2, 1))
    six = loops(6) if most > 6 else many

    @njit(nogil=True)
    def products(rows, tables, y, x, w, numbers):
        if rows >= most > 6 and numbers[0] <= TILES:  # with more spots, six rows are enough
            many(tables, y, x, w, numbers)
            return most
        if rows >= 6 and not (WIDE and rows == 8):  # four and four, because two alone would be slow
            six(tables, y, x, w, numbers)
            return 6
        if rows >= 4:
            four(tables, y, x, w, numbers)
            return 4
        if rows >= 2:
            two(tables, y, x, w, numbers)
            return 2
        one(tables, y, x, w, numbers)
        return 1

    return products


_products = _as_many_rows_as_fit(sixteen.products, 12 if WIDE else 6)
_listed_products = _as_many_rows_as_fit(lambda rows: sixteen.products(rows, listed=True))
_pooled_products = _as_many_rows_as_fit(sixteen.pooled_products)


def _as_many_terms_as_fit(rows: int) -> Any:
    """Does as many of the sums over lanes as fit into registers, and says of how many terms those are."""
    many, three, one = (sixteen.correlations(rows, terms) for terms in (_TERMS, 3, 1))

    @njit(nogil=True)
    def correlations(terms, tables, y, x, w, numbers):
        if terms >= _TERMS:
            many(tables, y, x, w, numbers)
            return _TERMS
        if terms >= 3:
            three(tables, y, x, w, numbers)
            return 3
        one(tables, y, x, w, numbers)
        return 1

    return correlations


_of_two, _of_one = _as_many_terms_as_fit(2), _as_many_terms_as_fit(1)
_of_most = _as_many_terms_as_fit(_ROWS) if WIDE else _of_two


@njit(nogil=True)
def _dense(s, spots, tables, params, acts):
    """A convolution or a linear layer: at every spot, all rows of weights times the terms in its window."""
    row = 0
    while row < s[ROWS]:
        there, here = (s[Y], s[Y_SPOTS], s[Y_ROWS] + row), (s[X], s[X_SPOTS], s[X_TERMS])
        weights = (s[W] + row * s[W_ROW], s[W_ROW], 1, s[BIAS] + row, 1, s[RELU])
        sizes = (spots, s[TERMS])
        row += _products(s[ROWS] - row, tables, acts, acts, params, sizes + there + here + weights)


@njit(nogil=True)
def _convolution_and_pool(s, pool, tables, params, acts, pick):
    """Both at once: what lies between them never leaves the registers."""
    row = 0
    while row < s[ROWS]:
        there, here = (pool[Y], pool[Y_SPOTS], pool[Y_ROWS] + row), (s[X], s[X_SPOTS], s[X_TERMS])
        weights = (s[W] + row * s[W_ROW], s[W_ROW], 1, s[BIAS] + row, 1, pool[RELU])
        sizes = (s[SPOTS] // 4, s[TERMS])
        row += _pooled_products(s[ROWS] - row, tables, acts, pick, params, sizes + there + here + weights)


@njit(nogil=True)
def _dense_to_input(s, spots, tables, params, slopes):
    """Back through it: the same with inputs and outputs exchanged.

    If there are lists, place by place of the input, each from all spots whose windows it is in, so that sums stay in
    registers for longer.
    """
    if s[KIND] == LINEAR:
        for spot in range(spots):
            slopes[tables[s[X_SPOTS] + spot] + s[X] :][: s[X_SIZE]] = 0
    else:
        slopes[s[X] : s[X] + s[X_SIZE]] = 0
    if not WIDE and s[CHANNELS]:
        window = s[TERMS] // s[CHANNELS]
        channel = 0
        while channel < s[CHANNELS]:
            there, here = (s[X], s[X_PLACES], s[X_PLANES] + channel), (s[Y], s[Y_LISTED], s[Y_ROWS])
            weights = (s[W] + channel * window, window, s[W_ROW], 0, 0, 0)
            numbers = (s[PLACES], s[ROWS], *there, *here, *weights, s[LISTS], s[W_LISTED])
            channel += _listed_products(s[CHANNELS] - channel, tables, slopes, slopes, params, numbers)
        return
    term = 0
    while term < s[TERMS]:
        there, here = (s[X], s[X_SPOTS], s[X_TERMS] + term), (s[Y], s[Y_SPOTS], s[Y_ROWS])
        weights = (s[W] + term, 1, s[W_ROW], 0, 0, 0)
        sizes = (spots, s[ROWS])
        term += _products(s[TERMS] - term, tables, slopes, slopes, params, sizes + there + here + weights)


@njit(nogil=True)
def _convolution_to_weights(s, tables, gradient, acts, slopes):
    row = 0
    while row < s[ROWS]:
        left = s[ROWS] - row
        rows = _ROWS if left >= _ROWS else 2 if left >= 2 else 1
        term = 0
        while term < s[TERMS]:
            there, here = (s[Y], s[Y_SPOTS], s[Y_ROWS] + row), (s[X], s[X_SPOTS], s[X_TERMS] + term)
            numbers = (s[SPOTS], *there, *here, s[W] + row * s[W_ROW] + term, s[W_ROW])
            if rows == _ROWS:
                term += _of_most(s[TERMS] - term, tables, slopes, acts, gradient, numbers)
            elif rows == 2:
                term += _of_two(s[TERMS] - term, tables, slopes, acts, gradient, numbers)
            else:
                term += _of_one(s[TERMS] - term, tables, slopes, acts, gradient, numbers)
        row += rows


@njit(nogil=True)
def _linear_to_weights(s, tables, gradient, acts, slopes, turned):
    """Of one tile: sums over its lanes would cost more than the products, so sixteen inputs lie side by side."""
    turned[:] = 0
    eights, width = s[TERMS] // 8, s[W_ROW]
    sixteen.turned_back(tables, acts, turned, _EACH, (eights, width, s[X], s[X_TERMS]))
    for i in range(8 * eights, s[TERMS]):
        at = s[X] + tables[s[X_TERMS] + i]
        for lane in range(LANES):
            turned[lane * width + i] = acts[at + lane]
    row = 0
    while row < s[ROWS]:
        there, here = (s[W], s[W_SPOTS], s[W_ROWS] + row), (0, s[W_SPOTS], s[W_TERMS])
        weights = (s[Y] + tables[s[Y_ROWS] + row], LANES, 1, 0, 0, 0)
        sizes = (-(-s[TERMS] // LANES), LANES)
        row += _products(s[ROWS] - row, tables, gradient, turned, slopes, sizes + there + here + weights)


@njit(nogil=True)
def _linear_from(plan):
    """The first of the linear layers, which come last."""
    i = len(plan)
    while plan[i - 1][KIND] == LINEAR:
        i -= 1
    return i


@njit(nogil=True)
def forward(plan, tables, params, acts, pick, tiles):
    """All stages for tiles that are loaded."""
    linear, room = _linear_from(plan), plan[0][X_SIZE]
    for tile in range(tiles):
        values, picks = acts[tile * room :], pick[tile * room :]
        for i in range(1, linear):
            s = plan[i]
            if s[POOLED]:
                _convolution_and_pool(s, plan[i + 1], tables, params, values, picks)
            elif s[KIND] != POOL:
                _dense(s, s[SPOTS], tables, params, values)
            elif not plan[i - 1][POOLED]:
                numbers = (s[SPOTS], s[TERMS], s[Y], s[Y_SPOTS], s[X], s[X_SPOTS], s[X_TERMS], s[RELU])
                sixteen.largest(tables, values, picks, values, numbers)
    for i in range(linear, len(plan)):
        _dense(plan[i], tiles, tables, params, acts)


@njit(nogil=True)
def _rectified(s, acts, slopes):
    values, down = acts[s[Y] : s[Y] + s[Y_SIZE]], slopes[s[Y] : s[Y] + s[Y_SIZE]]
    for i in range(len(values)):
        down[i] = down[i] if values[i] > 0 else np.float32(0)


@njit(nogil=True)
def backward(plan, tables, params, gradient, acts, slopes, pick, turned, to_input, tiles):
    """Back through them, adding to the gradient; to the network's input only if wanted."""
    linear, room = _linear_from(plan), plan[0][X_SIZE]
    for i in range(len(plan) - 1, linear - 1, -1):
        s = plan[i]
        for tile in range(tiles):
            values, down = acts[tile * room :], slopes[tile * room :]
            if s[RELU]:
                _rectified(s, values, down)
            _linear_to_weights(s, tables, gradient, values, down, turned)
        sixteen.sums(tables, slopes, gradient, gradient, (s[ROWS], tiles, s[Y], s[Y_SPOTS], s[Y_ROWS], s[BIAS]))
        if s[X] or to_input:
            _dense_to_input(s, tiles, tables, params, slopes)
    for tile in range(tiles):
        # What is the first tile's among the slopes serves all, one after another: so it stays in the cache.
        values, picks, down = acts[tile * room :], pick[tile * room :], slopes
        if tile:
            first = plan[linear][X]
            for i in range(first, first + plan[linear][X_SIZE]):
                down[i] = down[tile * room + i]
        for i in range(linear - 1, 0, -1):
            s = plan[i]
            if s[RELU]:
                _rectified(s, values, down)
            if s[KIND] == POOL:
                apart = plan[i - 1][POOLED]
                if not apart:
                    down[s[X] : s[X] + s[X_SIZE]] = 0
                numbers = (s[SPOTS], s[TERMS], s[Y], s[Y_SPOTS], s[X], s[X_SPOTS], s[X_TERMS], apart)
                sixteen.to_largest(tables, down, picks, down, numbers)
                continue
            sixteen.sums(tables, down, gradient, gradient, (s[ROWS], s[SPOTS], s[Y], s[Y_SPOTS], s[Y_ROWS], s[BIAS]))
            _convolution_to_weights(s, tables, gradient, values, down)
            if s[X] or to_input:
                _dense_to_input(s, s[SPOTS], tables, params, down)


@njit(nogil=True)
def load(places, acts, x, tile):
    """The rows of x that are in a tile, side by side."""
    eights = len(places) // 8
    sixteen.turned(places, acts, x, tile, (eights, len(places), 0, 0))
    for i in range(8 * eights, len(places)):
        values = acts[places[i] :][:LANES]
        for lane in range(LANES):
            values[lane] = x[tile[lane], i]
