"""The other loops of the compiled engine in LLVM IR: weight gradients, sums, max-pooling, changes of layout.

Each works on 16 samples in every instruction. `simd_products` has the loop that takes most of the time.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit

from equifl.sim.engines.compiled.llvm import AVX512, FLOAT, INT, INTS, REGISTER, LoopWriter, constant, llvm_loop
from equifl.sim.engines.compiled.memory_layout import SIMD_WIDTH

_ROWS, _TERMS = (4, 5) if AVX512 else (2, 6)  # of `correlations`, at most


class CorrelationOperands(NamedTuple):
    """Where the numbers of `correlations` are; see `ProductOperands` for what the fields mean."""

    positions: int
    terms: int
    y: int
    y_position_table: int
    y_row_table: int
    x: int
    x_position_table: int
    x_term_table: int
    w: int
    w_row_stride: int


def _correlations(rows: int) -> Any:
    """For some rows and every term: w[row, term] += sum over positions and samples of y[.., row] * x[.., term].

    A sum has one register, to which a tile's samples are added in parts of that length: two rows and six terms are 12
    of AVX2's 16, four rows and five terms 20 of AVX-512's 32 (more would fit, but LLVM first loads all that it
    multiplies).
    """

    def write(code: LoopWriter) -> None:
        build, (_, y, x, w) = code.builder, code.arrays
        operands: Any = CorrelationOperands(*code.operands)
        integer = operands.positions.type
        row_offsets = [code.add(operands.y, code.table(operands.y_row_table, integer(row))) for row in range(rows)]

        def of_terms(terms: list[Any]) -> None:
            term_offsets = [code.add(operands.x, code.table(operands.x_term_table, term)) for term in terms]
            sums = {pair: code.variable(REGISTER) for pair in itertools.product(range(rows), range(len(terms)))}
            for total in sums.values():
                build.store(constant(0.0, REGISTER), total)
            with code.loop(operands.positions) as position:
                x_offset = code.table(operands.x_position_table, position.index)
                y_offset = code.table(operands.y_position_table, position.index)
                for part in (integer(sample) for sample in range(0, SIMD_WIDTH, REGISTER.count)):
                    factors = [code.load(code.pointer(y, row, y_offset, part, kind=REGISTER)) for row in row_offsets]
                    for term, offset in enumerate(term_offsets):
                        value = code.load(code.pointer(x, offset, x_offset, part, kind=REGISTER))
                        for row, factor in enumerate(factors):
                            code.fused_multiply_add(factor, value, sums[row, term])
            for (row, term), total in sums.items():
                offset = code.add(operands.w, build.mul(operands.w_row_stride, integer(row)), terms[term])
                pointer = build.gep(w, [offset])
                build.store(build.fadd(build.load(pointer), code.sum_of_lanes(build.load(total))), pointer)

        code.in_blocks(operands.terms, (_TERMS, 3, 1), of_terms)

    return llvm_loop(write)


_of_two_rows, _of_one_row = _correlations(2), _correlations(1)
_of_most_rows = _correlations(_ROWS) if AVX512 else _of_two_rows


@njit(nogil=True)
def correlations(rows, tables, y, x, w, operands):
    """Do `_correlations` for the next rows, as many as fit into registers, and return how many."""
    if rows >= _ROWS:
        _of_most_rows(tables, y, x, w, operands)
        return _ROWS
    if rows >= 2:
        _of_two_rows(tables, y, x, w, operands)
        return 2
    _of_one_row(tables, y, x, w, operands)
    return 1


class RowSumOperands(NamedTuple):
    """Where the numbers of `row_sums` are; see `ProductOperands` for what the fields mean."""

    rows: int
    positions: int
    y: int
    y_position_table: int
    y_row_table: int
    w: int


@llvm_loop
def row_sums(code: LoopWriter) -> None:
    """For every row: w[row] += sum over positions and samples of y[position, row].

    The arrays are (tables, y, w, w).
    """
    build, (_, y, w, _) = code.builder, code.arrays
    operands: Any = RowSumOperands(*code.operands)
    total = code.variable()
    with code.loop(operands.rows) as row:
        row_offset = code.add(operands.y, code.table(operands.y_row_table, row.index))
        build.store(constant(0.0), total)
        with code.loop(operands.positions) as position:
            value = code.load(code.pointer(y, row_offset, code.table(operands.y_position_table, position.index)))
            build.store(build.fadd(build.load(total), value), total)
        pointer = build.gep(w, [code.add(operands.w, row.index)])
        build.store(build.fadd(build.load(pointer), code.sum_of_lanes(build.load(total))), pointer)


class PoolOperands(NamedTuple):
    """Where the numbers of a max-pooling are; see `STAGE` for what the fields mean.

    Attributes:
        relu: of the forward pass: 1 = negative results become 0.
        disjoint: of the backward pass: 1 = no input is in two windows.
    """

    positions: int
    taps: int
    y: int
    y_position_table: int
    x: int
    x_window_table: int
    x_tap_table: int
    relu: int
    disjoint: int


@llvm_loop
def max_pool(code: LoopWriter) -> None:
    """For every position: y = the largest of its window of x, argmax = which tap that is, the first of equals.

    The arrays are (tables, y, argmax, x).
    """
    build, (_, y, argmax, x) = code.builder, code.arrays
    operands: Any = PoolOperands(*code.operands)
    least = build.select(build.trunc(operands.relu, ir.IntType(1)), constant(0.0), constant(-math.inf))
    best, which = code.variable(), code.variable(INTS)
    with code.loop(operands.positions) as position:
        window = code.add(operands.x, code.table(operands.x_window_table, position.index))
        code.start_argmax(best, which)
        with code.loop(operands.taps) as tap:
            value = code.load(code.pointer(x, window, code.table(operands.x_tap_table, tap.index)))
            index = code.broadcast(build.trunc(tap.index, INT), INTS)
            code.update_argmax(value, index, best, which)
        output = code.add(operands.y, code.table(operands.y_position_table, position.index))
        code.store(code.at_least(build.load(best), least), code.pointer(y, output))
        code.store(build.load(which), code.pointer(argmax, output, kind=INTS))


@llvm_loop
def max_pool_backward(code: LoopWriter) -> None:
    """Gradient of a max-pooling: x += y at the tap that was largest; if `disjoint`, x = y there and 0 elsewhere.

    The arrays are (tables, y, argmax, x), where x and y hold gradients.
    """
    build, (_, y, argmax, x) = code.builder, code.arrays
    operands: Any = PoolOperands(*code.operands)
    before, disjoint = code.variable(), build.trunc(operands.disjoint, ir.IntType(1))
    with code.loop(operands.positions) as position:
        window = code.add(operands.x, code.table(operands.x_window_table, position.index))
        output = code.add(operands.y, code.table(operands.y_position_table, position.index))
        gradient, which = code.load(code.pointer(y, output)), code.load(code.pointer(argmax, output, kind=INTS))
        with code.loop(operands.taps) as tap:
            pointer = code.pointer(x, window, code.table(operands.x_tap_table, tap.index))
            index = code.broadcast(build.trunc(tap.index, INT), INTS)
            share = build.select(build.icmp_signed("==", which, index), gradient, constant(0.0))
            build.store(constant(0.0), before)
            with build.if_then(build.not_(disjoint)):
                build.store(code.load(pointer), before)
            code.store(build.fadd(build.load(before), share), pointer)


_EIGHT = ir.VectorType(FLOAT, 8)
_PAIRS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
_FOURS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
_HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


def _transposed(build: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight, transposed in three steps of shuffles, each of which is one instruction."""

    def shuffled(a: int, b: int, masks: Any) -> list[Any]:
        return [build.shuffle_vector(rows[a], rows[b], ir.Constant(ir.VectorType(INT, 8), mask)) for mask in masks]

    for distance, masks in ((1, _PAIRS), (2, _FOURS), (4, _HALVES)):
        new: list[Any] = [None] * 8
        for a in (i for i in range(8) if not i & distance):
            new[a], new[a + distance] = shuffled(a, a + distance, masks)
        rows = new
    return [rows[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]  # the order in which the shuffles leave them


class InterleaveOperands(NamedTuple):
    """Where the numbers of `interleave` and `deinterleave` are.

    Attributes:
        blocks: how many times eight numbers of each sample are moved.
        row_length: from one row of x to the next.
        y: where y begins.
        y_table: where the table begins that says, of each number, where its vector is, from there.
    """

    blocks: int
    row_length: int
    y: int
    y_table: int


def _change_of_layout(*, to_rows: bool) -> Any:
    """Between rows of x, one a sample, and vectors of y, one a number; eight numbers and eight samples at a time."""

    def write(code: LoopWriter) -> None:
        build, (_, y, x, tile) = code.builder, code.arrays
        operands: Any = InterleaveOperands(*code.operands)
        integer = operands.blocks.type
        rows = [
            build.mul(build.load(build.gep(tile, [integer(sample)])), operands.row_length)
            for sample in range(SIMD_WIDTH)
        ]
        with code.loop(operands.blocks) as block:
            first = build.mul(block.index, integer(8))
            offsets = [
                code.add(operands.y, code.table(operands.y_table, code.add(first, integer(i)))) for i in range(8)
            ]
            for half in range(0, SIMD_WIDTH, 8):
                vectors = [code.pointer(y, offset, integer(half), kind=_EIGHT) for offset in offsets]
                parts = [code.pointer(x, row, first, kind=_EIGHT) for row in rows[half : half + 8]]
                source, target = (vectors, parts) if to_rows else (parts, vectors)
                values = _transposed(build, [code.load(pointer) for pointer in source])
                for pointer, value in zip(target, values, strict=True):
                    code.store(value, pointer)

    return llvm_loop(write)


# The arrays are (tables, y, x, tile), where tile says which row of x each sample is.
interleave = _change_of_layout(to_rows=False)  # y[number][sample] = x[tile[sample], number]
deinterleave = _change_of_layout(to_rows=True)  # x[tile[sample], number] = y[number][sample]
