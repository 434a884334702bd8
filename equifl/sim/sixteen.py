"""Sixteen samples in every instruction: the loops of the fast engine that matter, in LLVM's own language.

LLVM makes of sixteen floats what the machine has: one register of AVX-512, two of AVX2, four of NEON. Left to itself,
with plain loops over the sixteen, it does not keep sums in registers, which is most of the speed
(`docs/performance.md`). So each loop is written here and put into the functions of `equifl.sim.kernels` by numba. As
many sums as there is room for: AVX2 has 16 registers, and AVX-512 has 32 of twice the length.

Every loop takes four arrays, of which the first holds tables of offsets, and a tuple of integers: where to begin in
the arrays and tables, and how far to go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

LANES = 16

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_CHOSEN = config.CPU_FEATURES  # type: ignore[attr-defined]  # by who set NUMBA_CPU_FEATURES
WIDE = bool(binding.get_host_cpu_features().get("avx512f")) if _CHOSEN is None else "+avx512f" in _CHOSEN
_REGISTER = ir.VectorType(_FLOAT, 16 if WIDE else 8)
_SPOTS = {12: (2, 1), 6: (4, 1), 4: (4, 1), 2: (4, 1), 1: (4, 1)}  # for so many rows: at once, then those left over


class _Code:
    """Writes LLVM's instructions into the function that calls it."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        arrays = zip(signature.args[:4], arguments[:4], strict=True)
        self.arrays = [context.make_array(kind)(context, builder, value=value).data for kind, value in arrays]
        self.numbers = cgutils.unpack_tuple(builder, arguments[4])

    def loop(self, count: Any) -> AbstractContextManager[Any]:
        return cgutils.for_range(self.builder, count)

    def plus(self, *numbers: Any) -> Any:
        return list(itertools.accumulate(numbers, self.builder.add))[-1]

    def table(self, start: Any, index: Any) -> Any:
        """An entry of the tables."""
        found = self.builder.load(self.builder.gep(self.arrays[0], [self.plus(start, index)]))
        return self.builder.sext(found, start.type)

    def variable(self, kind: Any = _FLOATS) -> Any:
        """What LLVM will keep in a register."""
        return cgutils.alloca_once(self.builder, kind)

    def at(self, array: Any, *places: Any, kind: Any = _FLOATS) -> Any:
        """Where some numbers begin."""
        return self.builder.bitcast(self.builder.gep(array, [self.plus(*places)]), kind.as_pointer())

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer, align=4)

    def same(self, number: Any, kind: Any = _FLOATS) -> Any:
        """One number in all lanes."""
        none = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(none, number, ir.Constant(_INT, 0))
        return self.builder.shuffle_vector(first, none, ir.Constant(_INTS, [0] * LANES))

    def at_least(self, value: Any, least: Any) -> Any:
        """The larger of both; a value that is no number stays so."""
        return self.builder.select(self.builder.fcmp_ordered("<", value, least), least, value)

    def nothing_yet(self, best: Any, which: Any) -> None:
        """Before the first of `largest_yet`."""
        self.builder.store(constant(-math.inf), best)
        self.builder.store(constant(0, _INTS), which)

    def largest_yet(self, value: Any, index: Any, best: Any, which: Any) -> None:
        """Keep a value in the variables, and its index, if it is larger than what they have, or is no number."""
        build = self.builder
        larger = build.fcmp_ordered(">", value, build.load(best))
        larger = build.or_(larger, build.fcmp_unordered("uno", value, value))  # which must not get lost
        build.store(build.select(larger, value, build.load(best)), best)
        build.store(build.select(larger, index, build.load(which)), which)

    def add_product(self, a: Any, b: Any, total: Any) -> None:
        """Add a * b to a variable, rounded once."""
        fma = self._known(f"llvm.fma.v{a.type.count}f32", a.type, *[a.type] * 3)
        self.builder.store(self.builder.call(fma, [a, b, self.builder.load(total)]), total)

    def sum_of_lanes(self, value: Any) -> Any:
        """In pairs, not one after another."""
        add = self._known(f"llvm.vector.reduce.fadd.v{value.type.count}f32", _FLOAT, _FLOAT, value.type)
        return self.builder.call(add, [ir.Constant(_FLOAT, 0.0), value], fastmath=("reassoc",))

    def opaque(self, pointer: Any) -> Any:
        """The same pointer, of which LLVM cannot know that: else it makes one of another, and each waits for that."""
        return self.builder.asm(ir.FunctionType(pointer.type, [pointer.type]), "", "=r,0", [pointer], False)

    def _known(self, name: str, result: Any, *arguments: Any) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)


def constant(number: float, kind: Any = _FLOATS) -> Any:
    """The same number in all lanes, known beforehand."""
    return ir.Constant(kind, [number] * kind.count)


def _loop(write: Callable[[_Code], None]) -> Any:
    """What numba replaces by the instructions that `write` writes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        write(_Code(context, builder, signature, arguments))
        return context.get_dummy_value()

    def typed(typing: Any, tables: Any, a: Any, b: Any, c: Any, numbers: Any) -> Any:
        return types.void(tables, a, b, c, numbers), generate

    return intrinsic(typed)


class _Products:
    """Of some rows of weights with what is at some spots: the sum over terms of w[row, term] * x[spot + term]."""

    def __init__(self, code: _Code, rows: int, x: Any) -> None:
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

    def write(code: _Code) -> None:
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

    return _loop(write)


def pooled_products(rows: int) -> Any:
    """The same where every four spots are a window: y = the largest of them, and pick = which it is.

    Here x is in the same array as y.
    """

    def write(code: _Code) -> None:
        build, (_, y, pick, _) = code.builder, code.arrays
        job, many = _Products(code, rows, y), 4 if WIDE else 1
        best = [(code.variable(), code.variable(_INTS)) for _ in range(rows)]
        with code.loop(job.spots) as window:
            for each in best:
                code.nothing_yet(*each)
            with code.loop(job.number(4 // many)) as part:
                places = [code.plus(build.mul(part.index, job.number(many)), job.number(i)) for i in range(many)]
                sums = job.begin(many)
                first = build.mul(window.index, job.number(4))
                job.add(sums, [code.plus(first, place) for place in places], job.number(0))
                for place, totals in zip(places, sums, strict=True):
                    index = code.same(build.trunc(place, _INT), _INTS)
                    for total, each in zip(totals, best, strict=True):
                        code.largest_yet(build.load(total), index, *each)
            for (value, which), place in zip(best, job.places(window.index), strict=True):
                code.store(code.at_least(build.load(value), job.least), code.at(y, place))
                code.store(build.load(which), code.at(pick, place, kind=_INTS))

    return _loop(write)


def correlations(rows: int, terms: int) -> Any:
    """For each of some rows and terms: w[row, term] += sum over spots and lanes of y[spot + row] * x[spot + term].

    One register a sum, to which all lanes are added: two rows and six terms are 12 of AVX2's 16, four rows and five
    terms 20 of AVX-512's 32 (and there would be room for more, but LLVM first loads all that it multiplies).
    """

    def write(code: _Code) -> None:
        build, (_, y, x, w) = code.builder, code.arrays
        spots, y_at, y_spots, y_rows, x_at, x_spots, x_terms, w_at, w_row = code.numbers
        row_at = [code.plus(y_at, code.table(y_rows, spots.type(row))) for row in range(rows)]
        term_at = [code.plus(x_at, code.table(x_terms, spots.type(term))) for term in range(terms)]
        sums = {pair: code.variable(_REGISTER) for pair in itertools.product(range(rows), range(terms))}
        for total in sums.values():
            build.store(constant(0.0, _REGISTER), total)
        with code.loop(spots) as spot:
            x_spot, y_spot = code.table(x_spots, spot.index), code.table(y_spots, spot.index)
            for part in (spots.type(lane) for lane in range(0, LANES, _REGISTER.count)):
                slopes = [code.load(code.at(y, at, y_spot, part, kind=_REGISTER)) for at in row_at]
                for term, at in enumerate(term_at):
                    value = code.load(code.at(x, at, x_spot, part, kind=_REGISTER))
                    for row, slope in enumerate(slopes):
                        code.add_product(slope, value, sums[row, term])
        for (row, term), total in sums.items():
            place = build.gep(w, [code.plus(w_at, build.mul(w_row, spots.type(row)), spots.type(term))])
            build.store(build.fadd(build.load(place), code.sum_of_lanes(build.load(total))), place)

    return _loop(write)


@_loop
def sums(code: _Code) -> None:
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


@_loop
def largest(code: _Code) -> None:
    """For every spot: y = the largest of a window of x, and pick = which it is, the first of equals; then `relu`."""
    build, (_, y, pick, x) = code.builder, code.arrays
    spots, size, y_at, y_spots, x_at, x_spots, window, relu = code.numbers
    least = build.select(build.trunc(relu, ir.IntType(1)), constant(0.0), constant(-math.inf))
    best, which = code.variable(), code.variable(_INTS)
    with code.loop(spots) as spot:
        x_spot = code.plus(x_at, code.table(x_spots, spot.index))
        code.nothing_yet(best, which)
        with code.loop(size) as place:
            value = code.load(code.at(x, x_spot, code.table(window, place.index)))
            index = code.same(build.trunc(place.index, _INT), _INTS)
            code.largest_yet(value, index, best, which)
        at = code.plus(y_at, code.table(y_spots, spot.index))
        code.store(code.at_least(build.load(best), least), code.at(y, at))
        code.store(build.load(which), code.at(pick, at, kind=_INTS))


@_loop
def to_largest(code: _Code) -> None:
    """Backward: x += y where the window was largest; or x = y or 0, if `apart`: if no place is in two windows."""
    build, (_, y, pick, x) = code.builder, code.arrays
    spots, size, y_at, y_spots, x_at, x_spots, window, apart = code.numbers
    there, apart = code.variable(), build.trunc(apart, ir.IntType(1))
    with code.loop(spots) as spot:
        x_spot = code.plus(x_at, code.table(x_spots, spot.index))
        at = code.plus(y_at, code.table(y_spots, spot.index))
        slope, which = code.load(code.at(y, at)), code.load(code.at(pick, at, kind=_INTS))
        with code.loop(size) as place:
            target = code.at(x, x_spot, code.table(window, place.index))
            index = code.same(build.trunc(place.index, _INT), _INTS)
            mine = build.select(build.icmp_signed("==", which, index), slope, constant(0.0))
            build.store(constant(0.0), there)
            with build.if_then(build.not_(apart)):
                build.store(code.load(target), there)
            code.store(build.fadd(build.load(there), mine), target)


_EIGHT = ir.VectorType(_FLOAT, 8)
_PAIRS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
_FOURS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
_HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


def _transposed(build: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight; in three steps, of each of which a CPU does every part by one instruction."""

    def mixed(a: int, b: int, kinds: Any) -> list[Any]:
        return [build.shuffle_vector(rows[a], rows[b], ir.Constant(ir.VectorType(_INT, 8), kind)) for kind in kinds]

    for apart, kinds in ((1, _PAIRS), (2, _FOURS), (4, _HALVES)):
        new: list[Any] = [None] * 8
        for a in (i for i in range(8) if not i & apart):
            new[a], new[a + apart] = mixed(a, a + apart, kinds)
        rows = new
    return [rows[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]  # as they have come out


def _turning(back: bool) -> Any:
    """Between rows of x and places of y, eight terms and eight lanes at a time."""

    def write(code: _Code) -> None:
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

    return _loop(write)


turned = _turning(back=False)  # for every term, lane by lane: y[term] = x[tile[lane], term]
turned_back = _turning(back=True)  # x[tile[lane], term] = y[term]; where lanes share a row, the first lane's stays
