"""Sixteen samples in every instruction: the loops of the fast engine that matter, in LLVM's own language.

Left to itself, with plain loops over the sixteen, LLVM does not keep sums in registers, which is most of the speed
(`benchmarks/NOTES.md`). So each loop is written here and put into the functions of `kernels` by numba. As
many sums as there is room for: AVX2 has 16 registers, and AVX-512 has 32 of twice the length.

Every loop takes four arrays, of which the first holds tables of offsets, and a tuple of integers: where to begin in
the arrays and tables, and how far to go.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from llvmlite import ir

from equifl.sim.engines.compiled.llvm import FLOAT, INT, INTS, LANES, REGISTER, WIDE, Code, constant, loop

_SPOTS = {12: (2, 1), 6: (4, 1), 4: (4, 1), 2: (4, 1), 1: (4, 1)}  # for so many rows: at once, then those left over


class _Products:
    """Of some rows of weights with what is at some spots: the sum over terms of w[row, term] * x[spot + term]."""

    def __init__(self, code: Code, rows: int, x: Any) -> None:
        self.code, self.x, self.w, build = code, x, code.arrays[3], code.builder
        (
            self.spots,
            self.terms,
            y_at,
            self.y_spots,
            y_rows,
            self.x_at,
            self.x_spots,
            self.x_terms,
            self.w_at,
            self.w_row,
            self.w_term,
            self.bias,
            fresh,
            relu,
            *self.lists,
        ) = code.numbers
        self.number = self.spots.type
        self.fresh = build.trunc(fresh, ir.IntType(1))
        self.least = build.select(build.trunc(relu, ir.IntType(1)), constant(0.0), constant(-math.inf))
        self.rows = [self.number(row) for row in range(rows)]
        self.row_at = [code.plus(y_at, code.table(y_rows, row)) for row in self.rows]
        self.ahead = [build.mul(self.w_row, self.number(i)) for i in range(3)]
        self.threes = [
            code.variable(self.w.type) for _ in self.rows[::3]
        ]  # a pointer: to three rows, by what is ahead

    def places(self, index: Any) -> list[Any]:
        """Where the rows of a spot of y begin."""
        y_spot = self.code.table(self.y_spots, index)
        return [self.code.plus(y_spot, at) for at in self.row_at]

    def begin(self, spots: int) -> list[list[Any]]:
        """Variables, spots of rows, that are 0 or biases."""
        code, build = self.code, self.code.builder
        sums = [[code.variable() for _ in self.rows] for _ in range(spots)]
        for total in itertools.chain(*sums):
            build.store(constant(0.0), total)
        with build.if_then(self.fresh):
            for row, totals in zip(self.rows, zip(*sums, strict=True), strict=True):
                bias = code.same(build.load(build.gep(self.w, [code.plus(self.bias, row)])))
                for total in totals:
                    build.store(bias, total)
        return sums

    def add(self, sums: list[list[Any]], indices: list[Any], shift: Any) -> None:
        """Add all terms at some spots, with weights from `shift` on."""
        code, build = self.code, self.code.builder
        spots = [code.plus(self.x_at, code.table(self.x_spots, index)) for index in indices]
        for pointer, row in zip(self.threes, self.rows[::3], strict=True):
            build.store(build.gep(self.w, [code.plus(self.w_at, shift, build.mul(self.w_row, row))]), pointer)
        with code.loop(self.terms) as term:
            place = code.table(self.x_terms, term.index)
            values = [code.load(code.at(self.x, spot, place)) for spot in spots]
            for three, pointer in enumerate(self.threes):
                here = code.opaque(build.load(pointer))
                for ahead, *totals in zip(self.ahead, *(each[3 * three :] for each in sums), strict=False):
                    weight = code.same(build.load(build.gep(here, [ahead])))
                    for value, total in zip(values, totals, strict=True):
                        code.add_product(value, weight, total)
                build.store(build.gep(here, [self.w_term]), pointer)


def products(rows: int, *, listed: bool = False) -> Any:
    """For every spot and each of some rows: y[spot + row] += sum over terms of w[row, term] * x[spot + term].

    Forward, backward to the input, and backward to the weights of linear layers are all of this form. If `fresh`, y is
    not added to but begins at a bias; if `relu`, the sum is then rectified. Six rows are 12 of AVX2's registers; with
    AVX-512, twelve rows for two spots at once, or six for four, are 24 of twice as many.

    If `listed`, every spot has a list of spots of x, each with a shift of the weights, and the sum is over these too.
    """

    def write(code: Code) -> None:
        build, (_, y, x, _) = code.builder, code.arrays
        job = _Products(code, rows, x)

        def at_spots(indices: list[Any]) -> None:
            sums = job.begin(len(indices))
            if listed:
                starts, shifts = job.lists
                start, end = (code.table(starts, code.plus(indices[0], job.number(i))) for i in range(2))
                with code.loop(build.sub(end, start)) as pair:
                    index = code.plus(start, pair.index)
                    job.add(sums, [index], code.table(shifts, index))
            else:
                job.add(sums, indices, job.number(0))
            for index, totals in zip(indices, sums, strict=True):
                places = [code.at(y, place) for place in job.places(index)]
                with build.if_then(build.not_(job.fresh)):  # not before: neighbouring spots would wait for each other
                    for total, place in zip(totals, places, strict=True):
                        build.store(build.fadd(code.load(place), build.load(total)), total)
                for total, place in zip(totals, places, strict=True):
                    code.store(code.at_least(build.load(total), job.least), place)

        done = job.number(0)
        for many in _SPOTS[rows] if WIDE and not listed else (1,):
            blocks = build.sdiv(build.sub(job.spots, done), job.number(many))
            with code.loop(blocks) as block:
                first = code.plus(done, build.mul(block.index, job.number(many)))
                at_spots([code.plus(first, job.number(i)) for i in range(many)])
            done = code.plus(done, build.mul(blocks, job.number(many)))

    return loop(write)


def pooled_products(rows: int) -> Any:
    """The same where every four spots are a window: y = the largest of them, and pick = which it is.

    Here x is in the same array as y.
    """

    def write(code: Code) -> None:
        build, (_, y, pick, _) = code.builder, code.arrays
        job, many = _Products(code, rows, y), 4 if WIDE else 1
        best = [(code.variable(), code.variable(INTS)) for _ in range(rows)]
        with code.loop(job.spots) as window:
            for each in best:
                code.nothing_yet(*each)
            with code.loop(job.number(4 // many)) as part:
                places = [code.plus(build.mul(part.index, job.number(many)), job.number(i)) for i in range(many)]
                sums = job.begin(many)
                first = build.mul(window.index, job.number(4))
                job.add(sums, [code.plus(first, place) for place in places], job.number(0))
                for place, totals in zip(places, sums, strict=True):
                    index = code.same(build.trunc(place, INT), INTS)
                    for total, each in zip(totals, best, strict=True):
                        code.largest_yet(build.load(total), index, *each)
            for (value, which), place in zip(best, job.places(window.index), strict=True):
                code.store(code.at_least(build.load(value), job.least), code.at(y, place))
                code.store(build.load(which), code.at(pick, place, kind=INTS))

    return loop(write)


def correlations(rows: int, terms: int) -> Any:
    """For each of some rows and terms: w[row, term] += sum over spots and lanes of y[spot + row] * x[spot + term].

    One register a sum, to which all lanes are added: two rows and six terms are 12 of AVX2's 16, four rows and five
    terms 20 of AVX-512's 32 (and there would be room for more, but LLVM first loads all that it multiplies).
    """

    def write(code: Code) -> None:
        build, (_, y, x, w) = code.builder, code.arrays
        spots, y_at, y_spots, y_rows, x_at, x_spots, x_terms, w_at, w_row = code.numbers
        row_at = [code.plus(y_at, code.table(y_rows, spots.type(row))) for row in range(rows)]
        term_at = [code.plus(x_at, code.table(x_terms, spots.type(term))) for term in range(terms)]
        sums = {pair: code.variable(REGISTER) for pair in itertools.product(range(rows), range(terms))}
        for total in sums.values():
            build.store(constant(0.0, REGISTER), total)
        with code.loop(spots) as spot:
            x_spot, y_spot = code.table(x_spots, spot.index), code.table(y_spots, spot.index)
            for part in (spots.type(lane) for lane in range(0, LANES, REGISTER.count)):
                slopes = [code.load(code.at(y, at, y_spot, part, kind=REGISTER)) for at in row_at]
                for term, at in enumerate(term_at):
                    value = code.load(code.at(x, at, x_spot, part, kind=REGISTER))
                    for row, slope in enumerate(slopes):
                        code.add_product(slope, value, sums[row, term])
        for (row, term), total in sums.items():
            place = build.gep(w, [code.plus(w_at, build.mul(w_row, spots.type(row)), spots.type(term))])
            build.store(build.fadd(build.load(place), code.sum_of_lanes(build.load(total))), place)

    return loop(write)


@loop
def sums(code: Code) -> None:
    """For every row: w[row] += sum over spots and lanes of y[spot + row]."""
    build, (_, y, w, _) = code.builder, code.arrays
    rows, spots, y_at, y_spots, y_rows, w_at = code.numbers
    total = code.variable()
    with code.loop(rows) as row:
        row_at = code.plus(y_at, code.table(y_rows, row.index))
        build.store(constant(0.0), total)
        with code.loop(spots) as spot:
            value = code.load(code.at(y, row_at, code.table(y_spots, spot.index)))
            build.store(build.fadd(build.load(total), value), total)
        place = build.gep(w, [code.plus(w_at, row.index)])
        build.store(build.fadd(build.load(place), code.sum_of_lanes(build.load(total))), place)


@loop
def largest(code: Code) -> None:
    """For every spot: y = the largest of a window of x, and pick = which it is, the first of equals; then `relu`."""
    build, (_, y, pick, x) = code.builder, code.arrays
    spots, size, y_at, y_spots, x_at, x_spots, window, relu = code.numbers
    least = build.select(build.trunc(relu, ir.IntType(1)), constant(0.0), constant(-math.inf))
    best, which = code.variable(), code.variable(INTS)
    with code.loop(spots) as spot:
        x_spot = code.plus(x_at, code.table(x_spots, spot.index))
        code.nothing_yet(best, which)
        with code.loop(size) as place:
            value = code.load(code.at(x, x_spot, code.table(window, place.index)))
            index = code.same(build.trunc(place.index, INT), INTS)
            code.largest_yet(value, index, best, which)
        at = code.plus(y_at, code.table(y_spots, spot.index))
        code.store(code.at_least(build.load(best), least), code.at(y, at))
        code.store(build.load(which), code.at(pick, at, kind=INTS))


@loop
def to_largest(code: Code) -> None:
    """Backward: x += y where the window was largest; or x = y or 0, if `apart`: if no place is in two windows."""
    build, (_, y, pick, x) = code.builder, code.arrays
    spots, size, y_at, y_spots, x_at, x_spots, window, apart = code.numbers
    there, apart = code.variable(), build.trunc(apart, ir.IntType(1))
    with code.loop(spots) as spot:
        x_spot = code.plus(x_at, code.table(x_spots, spot.index))
        at = code.plus(y_at, code.table(y_spots, spot.index))
        slope, which = code.load(code.at(y, at)), code.load(code.at(pick, at, kind=INTS))
        with code.loop(size) as place:
            target = code.at(x, x_spot, code.table(window, place.index))
            index = code.same(build.trunc(place.index, INT), INTS)
            mine = build.select(build.icmp_signed("==", which, index), slope, constant(0.0))
            build.store(constant(0.0), there)
            with build.if_then(build.not_(apart)):
                build.store(code.load(target), there)
            code.store(build.fadd(build.load(there), mine), target)


_EIGHT = ir.VectorType(FLOAT, 8)
_PAIRS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
_FOURS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
_HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


def _transposed(build: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight; in three steps, of each of which a CPU does every part by one instruction."""

    def mixed(a: int, b: int, kinds: Any) -> list[Any]:
        return [build.shuffle_vector(rows[a], rows[b], ir.Constant(ir.VectorType(INT, 8), kind)) for kind in kinds]

    for apart, kinds in ((1, _PAIRS), (2, _FOURS), (4, _HALVES)):
        new: list[Any] = [None] * 8
        for a in (i for i in range(8) if not i & apart):
            new[a], new[a + apart] = mixed(a, a + apart, kinds)
        rows = new
    return [rows[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]  # as they have come out


def _turning(back: bool) -> Any:
    """Between rows of x and places of y, eight terms and eight lanes at a time."""

    def write(code: Code) -> None:
        build, (_, y, x, tile) = code.builder, code.arrays
        eights, width, y_at, y_rows = code.numbers
        number = eights.type
        rows = [build.mul(build.load(build.gep(tile, [number(lane)])), width) for lane in range(LANES)]
        with code.loop(eights) as eight:
            first = build.mul(eight.index, number(8))
            places = [code.plus(y_at, code.table(y_rows, code.plus(first, number(term)))) for term in range(8)]
            for half in reversed(range(0, LANES, 8)):
                here = [code.at(y, place, number(half), kind=_EIGHT) for place in places]
                there = [code.at(x, row, first, kind=_EIGHT) for row in rows[half : half + 8]]
                source, target = (here, there) if back else (there, here)
                values = _transposed(build, [code.load(place) for place in source])
                for place, value in reversed(list(zip(target, values, strict=True))):
                    code.store(value, place)

    return loop(write)


turned = _turning(back=False)  # for every term, lane by lane: y[term] = x[tile[lane], term]
turned_back = _turning(back=True)  # x[tile[lane], term] = y[term]; where lanes share a row, the first lane's stays
