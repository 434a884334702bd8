"""LLVM's instructions, sixteen floats at a time: what the loops of `simd_loops` are written with.

LLVM makes of sixteen floats what the machine has: one register of AVX-512, two of AVX2, four of NEON.
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
FLOAT, INT = ir.FloatType(), ir.IntType(32)
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
_CHOSEN = config.CPU_FEATURES  # type: ignore[attr-defined]  # by who set NUMBA_CPU_FEATURES
WIDE = bool(binding.get_host_cpu_features().get("avx512f")) if _CHOSEN is None else "+avx512f" in _CHOSEN
REGISTER = ir.VectorType(FLOAT, 16 if WIDE else 8)


class Code:
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

    def variable(self, kind: Any = FLOATS) -> Any:
        """What LLVM will keep in a register."""
        return cgutils.alloca_once(self.builder, kind)

    def at(self, array: Any, *places: Any, kind: Any = FLOATS) -> Any:
        """Where some numbers begin."""
        return self.builder.bitcast(self.builder.gep(array, [self.plus(*places)]), kind.as_pointer())

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer, align=4)

    def same(self, number: Any, kind: Any = FLOATS) -> Any:
        """One number in all lanes."""
        none = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(none, number, ir.Constant(INT, 0))
        return self.builder.shuffle_vector(first, none, ir.Constant(INTS, [0] * LANES))

    def at_least(self, value: Any, least: Any) -> Any:
        """The larger of both; a value that is no number stays so."""
        return self.builder.select(self.builder.fcmp_ordered("<", value, least), least, value)

    def nothing_yet(self, best: Any, which: Any) -> None:
        """Before the first of `largest_yet`."""
        self.builder.store(constant(-math.inf), best)
        self.builder.store(constant(0, INTS), which)

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
        add = self._known(f"llvm.vector.reduce.fadd.v{value.type.count}f32", FLOAT, FLOAT, value.type)
        return self.builder.call(add, [ir.Constant(FLOAT, 0.0), value], fastmath=("reassoc",))

    def opaque(self, pointer: Any) -> Any:
        """The same pointer, of which LLVM cannot know that: else it makes one of another, and each waits for that."""
        return self.builder.asm(ir.FunctionType(pointer.type, [pointer.type]), "", "=r,0", [pointer], False)

    def _known(self, name: str, result: Any, *arguments: Any) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)


def constant(number: float, kind: Any = FLOATS) -> Any:
    """The same number in all lanes, known beforehand."""
    return ir.Constant(kind, [number] * kind.count)


def loop(write: Callable[[Code], None]) -> Any:
    """What numba replaces by the instructions that `write` writes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        write(Code(context, builder, signature, arguments))
        return context.get_dummy_value()

    def typed(typing: Any, tables: Any, a: Any, b: Any, c: Any, numbers: Any) -> Any:
        return types.void(tables, a, b, c, numbers), generate

    return intrinsic(typed)
