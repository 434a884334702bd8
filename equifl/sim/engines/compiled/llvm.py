"""A small vocabulary for loops in LLVM IR, 16 floats at a time.

LLVM makes of a vector of 16 floats what the machine has: one register of AVX-512, two of AVX2, four of NEON.
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

from equifl.sim.engines.compiled.memory_layout import SIMD_WIDTH

FLOAT, INT = ir.FloatType(), ir.IntType(32)
FLOATS, INTS = ir.VectorType(FLOAT, SIMD_WIDTH), ir.VectorType(INT, SIMD_WIDTH)
_FEATURES = config.CPU_FEATURES  # type: ignore[attr-defined]  # of NUMBA_CPU_FEATURES; None = those of this machine
AVX512 = bool(binding.get_host_cpu_features().get("avx512f")) if _FEATURES is None else "+avx512f" in _FEATURES
REGISTER = ir.VectorType(FLOAT, 16 if AVX512 else 8)  # what one register holds


class LoopWriter:
    """Writes LLVM instructions into the function that calls the loop.

    Args:
        context: numba's, as the arguments below.
        builder: writes single instructions.
        signature: types of the arguments.
        arguments: four arrays, of which the first holds tables of offsets, and a tuple of integers.

    Attributes:
        arrays: pointers to the first element of each of the four.
        operands: the integers.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        arrays = zip(signature.args[:4], arguments[:4], strict=True)
        self.arrays = [context.make_array(kind)(context, builder, value=value).data for kind, value in arrays]
        self.operands = cgutils.unpack_tuple(builder, arguments[4])

    def loop(self, count: Any) -> AbstractContextManager[Any]:
        """A loop over 0, 1, ..., count - 1, which is the `index` of what it gives."""
        return cgutils.for_range(self.builder, count)

    def in_blocks(self, count: Any, sizes: tuple[int, ...], write: Callable[[list[Any]], None]) -> None:
        """Loops over blocks of 0, 1, ..., count - 1: of the first size as long as there are so many, then the next.

        The last size is 1. `write` is given the indices of a block.
        """
        done = count.type(0)
        for size in sizes:
            blocks = self.builder.sdiv(self.builder.sub(count, done), count.type(size))
            with self.loop(blocks) as block:
                first = self.add(done, self.builder.mul(block.index, count.type(size)))
                write([self.add(first, count.type(i)) for i in range(size)])
            done = self.add(done, self.builder.mul(blocks, count.type(size)))

    def add(self, *numbers: Any) -> Any:
        """The sum of integers."""
        return list(itertools.accumulate(numbers, self.builder.add))[-1]

    def table(self, start: Any, index: Any) -> Any:
        """An entry of the table that begins at `start`."""
        entry = self.builder.load(self.builder.gep(self.arrays[0], [self.add(start, index)]))
        return self.builder.sext(entry, start.type)

    def variable(self, kind: Any = FLOATS) -> Any:
        """A variable that LLVM will keep in a register; the loop's own `builder` loads and stores it."""
        return cgutils.alloca_once(self.builder, kind)

    def pointer(self, array: Any, *offsets: Any, kind: Any = FLOATS) -> Any:
        """A pointer to the vector that begins at the sum of the offsets."""
        return self.builder.bitcast(self.builder.gep(array, [self.add(*offsets)]), kind.as_pointer())

    def load(self, pointer: Any) -> Any:
        """The vector at a pointer, which need not be aligned."""
        return self.builder.load(pointer, align=4)

    def store(self, value: Any, pointer: Any) -> None:
        """Write a vector to a pointer, which need not be aligned."""
        self.builder.store(value, pointer, align=4)

    def broadcast(self, number: Any, kind: Any = FLOATS) -> Any:
        """One number in all SIMD lanes."""
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(undefined, number, ir.Constant(INT, 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(INTS, [0] * SIMD_WIDTH))

    def at_least(self, value: Any, least: Any) -> Any:
        """The larger of both; a nan stays a nan."""
        return self.builder.select(self.builder.fcmp_ordered("<", value, least), least, value)

    def start_argmax(self, best: Any, which: Any) -> None:
        """Initialise the variables of `update_argmax`."""
        self.builder.store(constant(-math.inf), best)
        self.builder.store(constant(0, INTS), which)

    def update_argmax(self, value: Any, index: Any, best: Any, which: Any) -> None:
        """Store value and index in the variables where it is larger than the best so far, or a nan."""
        build = self.builder
        larger = build.fcmp_ordered(">", value, build.load(best))
        larger = build.or_(larger, build.fcmp_unordered("uno", value, value))  # a nan must not get lost
        build.store(build.select(larger, value, build.load(best)), best)
        build.store(build.select(larger, index, build.load(which)), which)

    def fused_multiply_add(self, a: Any, b: Any, total: Any) -> None:
        """Add a * b to a variable, rounded once."""
        fma = self._intrinsic(f"llvm.fma.v{a.type.count}f32", a.type, *[a.type] * 3)
        self.builder.store(self.builder.call(fma, [a, b, self.builder.load(total)]), total)

    def sum_of_lanes(self, value: Any) -> Any:
        """The sum of a vector's numbers, added pairwise."""
        add = self._intrinsic(f"llvm.vector.reduce.fadd.v{value.type.count}f32", FLOAT, FLOAT, value.type)
        return self.builder.call(add, [ir.Constant(FLOAT, 0.0), value], fastmath=("reassoc",))

    def opaque(self, pointer: Any) -> Any:
        """The same pointer, of which LLVM does not know that.

        Else it computes one pointer from another, and each waits for the one before.
        """
        return self.builder.asm(ir.FunctionType(pointer.type, [pointer.type]), "", "=r,0", [pointer], False)

    def _intrinsic(self, name: str, result: Any, *arguments: Any) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)


def constant(number: float, kind: Any = FLOATS) -> Any:
    """A constant in all SIMD lanes."""
    return ir.Constant(kind, [number] * kind.count)


def llvm_loop(write: Callable[[LoopWriter], None]) -> Any:
    """A function for compiled code, of four arrays and a tuple of integers, whose body `write` writes.

    The first array holds tables of offsets. The integers say where to begin in arrays and tables, and how far to go;
    they come as a named tuple, all of whose fields must be given (numba ignores defaults).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        write(LoopWriter(context, builder, signature, arguments))
        return context.get_dummy_value()

    def typed(typing: Any, tables: Any, a: Any, b: Any, c: Any, operands: Any) -> Any:
        return types.void(tables, a, b, c, operands), generate

    return intrinsic(typed)
