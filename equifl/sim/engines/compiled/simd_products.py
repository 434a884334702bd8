"""The product that most of the time goes into: weights with inputs, for 16 samples in every instruction.

    y[position, row] += sum over terms of w[row, term] * x[position, term]

The forward pass of convolutions and linear layers is of this form (a row is an output, a term a tap); so is the
backward pass to their inputs (a row is a tap, a term an output), and to the weights of linear layers (a row is an
output, a term a sample, a position 16 weights). Each x and y is a vector of 16 floats, each w one number.

As many sums as possible stay in registers while the terms are added: AVX2 has 16 registers of 8 floats, so six sums
take 12 of them. AVX-512 has 32 of 16 floats: six rows at four positions, or twelve rows at two, take 24.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit

from equifl.sim.engines.compiled.llvm import AVX512, INT, INTS, LoopWriter, constant, llvm_loop
from equifl.sim.engines.compiled.memory_layout import TILES

# With AVX-512, for so many rows: how many positions at once, and then those left over.
_POSITIONS = {12: (2, 1), 6: (4, 1), 4: (4, 1), 2: (4, 1), 1: (4, 1)}
_POINTER_ROWS = 3  # rows of weights that one pointer leads to


class ProductOperands(NamedTuple):
    """Where a product's numbers are.

    Offsets into y, x and w count floats; a field `..._table` is where a table of offsets begins.

    Attributes:
        positions: how many there are.
        terms: how many products each sum has.
        y: where y begins.
        y_position_table: of each position, from there.
        y_row_table: of each row, from the position.
        x: where x begins.
        x_position_table: of each position, from there.
        x_term_table: of each term, from the position.
        w: where w begins.
        w_row_stride: from one row of w to the next.
        w_term_stride: from one term to the next.
        bias: where the rows' biases are in w, if `overwrite`.
        overwrite: 1 = y becomes bias + sum; 0 = the sum is added to y.
        relu: 1 = negative results become 0.
        gather_list_table: `gathered_products` only: of each position, where its list begins in `x_position_table`
            and `gather_shift_table`, and one more for the end of the last.
        gather_shift_table: of each listed position, how much is added to w.
    """

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
    w_term_stride: int
    bias: int
    overwrite: int
    relu: int
    gather_list_table: int
    gather_shift_table: int


class _ProductWriter:
    """Writes the parts of a product loop for a fixed number of rows."""

    def __init__(self, code: LoopWriter, rows: int, x: Any) -> None:
        self.code, self.x, self.w, build = code, x, code.arrays[3], code.builder
        operands: Any = ProductOperands(*code.operands)  # as values in LLVM IR
        self.operands, self.integer = operands, operands.positions.type
        self.overwrite = build.trunc(operands.overwrite, ir.IntType(1))
        self.least = build.select(build.trunc(operands.relu, ir.IntType(1)), constant(0.0), constant(-math.inf))
        self.rows = [self.integer(row) for row in range(rows)]
        self.row_offsets = [code.add(operands.y, code.table(operands.y_row_table, row)) for row in self.rows]
        self.row_steps = [build.mul(operands.w_row_stride, self.integer(i)) for i in range(_POINTER_ROWS)]
        self.pointers = [code.variable(self.w.type) for _ in self.rows[::_POINTER_ROWS]]

    def outputs(self, position: Any) -> list[Any]:
        """Offsets in y of the rows at a position."""
        offset = self.code.table(self.operands.y_position_table, position)
        return [self.code.add(offset, row) for row in self.row_offsets]

    def start(self, positions: int) -> list[list[Any]]:
        """Variables, by position and row, that are 0, or the bias if y is overwritten."""
        code, build = self.code, self.code.builder
        sums = [[code.variable() for _ in self.rows] for _ in range(positions)]
        for total in itertools.chain(*sums):
            build.store(constant(0.0), total)
        with build.if_then(self.overwrite):
            for row, totals in zip(self.rows, zip(*sums, strict=True), strict=True):
                bias = code.broadcast(build.load(build.gep(self.w, [code.add(self.operands.bias, row)])))
                for total in totals:
                    build.store(bias, total)
        return sums

    def accumulate(self, sums: list[list[Any]], positions: list[Any], shift: Any) -> None:
        """Add all terms at some positions of x, with weights from `shift` on."""
        code, build = self.code, self.code.builder
        operands = self.operands
        offsets = [code.add(operands.x, code.table(operands.x_position_table, position)) for position in positions]
        for pointer, row in zip(self.pointers, self.rows[::_POINTER_ROWS], strict=True):
            first = code.add(operands.w, shift, build.mul(operands.w_row_stride, row))
            build.store(build.gep(self.w, [first]), pointer)
        with code.loop(operands.terms) as term:
            term_offset = code.table(operands.x_term_table, term.index)
            values = [code.load(code.pointer(self.x, offset, term_offset)) for offset in offsets]
            for i, pointer in enumerate(self.pointers):
                weights = code.opaque(build.load(pointer))
                rows_of_pointer = (each[_POINTER_ROWS * i :] for each in sums)
                for step, *totals in zip(self.row_steps, *rows_of_pointer, strict=False):
                    weight = code.broadcast(build.load(build.gep(weights, [step])))
                    for value, total in zip(values, totals, strict=True):
                        code.fused_multiply_add(value, weight, total)
                build.store(build.gep(weights, [operands.w_term_stride]), pointer)


def _products(rows: int, *, gather: bool = False) -> Any:
    """The product for a fixed number of rows; with `gather`, each position sums over a list of positions of x."""

    def write(code: LoopWriter) -> None:
        build, (_, y, x, _) = code.builder, code.arrays
        product = _ProductWriter(code, rows, x)
        operands, integer = product.operands, product.integer

        def at_positions(positions: list[Any]) -> None:
            sums = product.start(len(positions))
            if gather:
                ends = (code.add(positions[0], integer(i)) for i in range(2))
                start, end = (code.table(operands.gather_list_table, index) for index in ends)
                with code.loop(build.sub(end, start)) as entry:
                    index = code.add(start, entry.index)
                    product.accumulate(sums, [index], code.table(operands.gather_shift_table, index))
            else:
                product.accumulate(sums, positions, integer(0))
            for position, totals in zip(positions, sums, strict=True):
                pointers = [code.pointer(y, offset) for offset in product.outputs(position)]
                # y is added here and not at the start, where neighbouring positions would wait for each other.
                with build.if_then(build.not_(product.overwrite)):
                    for total, pointer in zip(totals, pointers, strict=True):
                        build.store(build.fadd(code.load(pointer), build.load(total)), total)
                for total, pointer in zip(totals, pointers, strict=True):
                    code.store(code.at_least(build.load(total), product.least), pointer)

        code.in_blocks(operands.positions, _POSITIONS[rows] if AVX512 and not gather else (1,), at_positions)

    return llvm_loop(write)


def _pooled_products(rows: int) -> Any:
    """The product followed by max-pooling, for a fixed number of rows.

    Every four positions are a window: y = the largest of the four, argmax = which of them it is. What is pooled stays
    in registers. The arrays are (tables, y, argmax, w): x is in the same array as y.
    """

    def write(code: LoopWriter) -> None:
        build, (_, y, argmax, _) = code.builder, code.arrays
        product, together = _ProductWriter(code, rows, y), 4 if AVX512 else 1
        integer = product.integer
        best = [(code.variable(), code.variable(INTS)) for _ in range(rows)]
        with code.loop(product.operands.positions) as window:
            for each in best:
                code.start_argmax(*each)
            with code.loop(integer(4 // together)) as part:
                taps = [code.add(build.mul(part.index, integer(together)), integer(i)) for i in range(together)]
                sums = product.start(together)
                first = build.mul(window.index, integer(4))
                product.accumulate(sums, [code.add(first, tap) for tap in taps], integer(0))
                for tap, totals in zip(taps, sums, strict=True):
                    index = code.broadcast(build.trunc(tap, INT), INTS)
                    for total, each in zip(totals, best, strict=True):
                        code.update_argmax(build.load(total), index, *each)
            for (value, which), offset in zip(best, product.outputs(window.index), strict=True):
                code.store(code.at_least(build.load(value), product.least), code.pointer(y, offset))
                code.store(build.load(which), code.pointer(argmax, offset, kind=INTS))

    return llvm_loop(write)


def _as_many_rows_as_fit(loop_of: Callable[[int], Any], most: int = 6) -> Any:
    """A function that does a product for the next rows, as many as fit into registers, and returns how many.

    Args:
        loop_of: the loop for a number of rows.
        most: how many rows fit at `TILES` positions; at more positions it is six.
    """
    many, four, two, one = (loop_of(rows) for rows in (most, 4, 2, 1))
    six = loop_of(6) if most > 6 else many

    @njit(nogil=True)
    def next_rows(rows, tables, y, x, w, operands):
        if rows >= most > 6 and operands.positions <= TILES:
            many(tables, y, x, w, operands)
            return most
        if rows >= 6 and not (AVX512 and rows == 8):  # eight as four and four, because two alone would be slow
            six(tables, y, x, w, operands)
            return 6
        if rows >= 4:
            four(tables, y, x, w, operands)
            return 4
        if rows >= 2:
            two(tables, y, x, w, operands)
            return 2
        one(tables, y, x, w, operands)
        return 1

    return next_rows


products = _as_many_rows_as_fit(_products, 12 if AVX512 else 6)
gathered_products = _as_many_rows_as_fit(lambda rows: _products(rows, gather=True))
pooled_products = _as_many_rows_as_fit(_pooled_products)
