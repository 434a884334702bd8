"""CountSketch: short sketches of long updates, determined by a seed; no projection matrix is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, numbers, require
from equifl.signals import Ints

_BLOCK = 2**16  # positions hashed at a time: half a mebibyte of places
_BLOCKS_KEPT = 64  # 32 MiB: an update of up to four million numbers is hashed once, not once a client

# Steele, Lea and Flood's SplitMix64, its constants as signed integers, because torch has no unsigned ones.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64

Int64s: TypeAlias = Any  # an array of numpy or a tensor of torch: the hash uses the operators that both have


@dataclass(frozen=True, kw_only=True)
class CountSketch:
    """An update of any length as `length` numbers, with nearly the same distances.

    Count-sketch (Charikar, Chen, Farach-Colton 2002): number p of the update is added to or subtracted from one of
    `length` sums; a hash of (seed, p) says which. So it is linear (a mean of sketches is the sketch of the mean),
    and a squared distance between two sketches is that between the updates on average, with a relative deviation of
    sqrt(2 / length): the distance is off by 1 / sqrt(2 * length), 4 % at 256. What is not finite in an update is
    not finite in its sketch.

    Args:
        length: how many numbers a sketch has.
        seed: sketches can be compared only if they were made with the same one.

    >>> sketch = CountSketch(length=4)
    >>> weight, bias = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0])
    >>> sketch([weight, bias]).tolist() == sketch([1.0, 2.0, 3.0, 4.0, 5.0]).tolist()
    True
    """

    length: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        require("length", self.length, integer("length", self.length, least=1) < 2**31, "below 2**31")
        require("seed", self.seed, integer("seed", self.seed, least=0) < 2**63, "below 2**63")

    def __call__(self, update: ArrayLike | Iterable[ArrayLike]) -> NDArray[np.float32]:
        """(length,) of one update: a vector, or its tensors in their order, which may come one by one."""
        # One by one in float64 and in the order of positions: how the update is cut cannot change a bit.
        sums = np.zeros(2 * self.length)  # what is added, then what is subtracted
        count = 0
        for values in _pieces(update):
            while len(values):
                block, start = divmod(count, _BLOCK)
                places = _places_of_block(self, block)[start : start + len(values)]
                np.add.at(sums, places, values[: len(places)].astype(np.float64))
                count += len(places)
                values = values[len(places) :]
        if not count:
            raise ValueError("update: no numbers; allowed: at least one")
        with np.errstate(over="ignore", invalid="ignore"):  # too large or inf - inf: seen in the sketch
            return (sums[: self.length] - sums[self.length :]).astype(np.float32)

    def rows(self, updates: ArrayLike) -> NDArray[np.float32]:
        """(N, length) of updates (N, d): each row as by itself."""
        values = numbers("updates", updates)
        if values.ndim != 2 or not values.shape[1]:
            raise ValueError(f"updates: shape {values.shape} is not allowed; allowed: (N, d) with d >= 1")
        sketches = np.empty((len(values), self.length), np.float32)
        for row, update in enumerate(values):
            sketches[row] = self(update)
        return sketches

    def places(self, positions: Int64s) -> Int64s:
        """Where the numbers at these positions go: b if added to sum b, b + length if subtracted from it.

        Positions are int64, in an array of numpy or a tensor of torch; the places come in the same.

        >>> CountSketch(length=4).places(np.arange(5)).tolist()
        [6, 2, 5, 2, 7]
        """
        key = int(_mix(np.array([self.seed], np.int64) + _GAMMA)[0])
        mixed = pseudorandom(positions, key)
        bucket = (_shifted(mixed, 32) * self.length) >> 32
        return bucket + (mixed & 1) * self.length


def pseudorandom(positions: Int64s, key: int = 0) -> Int64s:
    """64 bits for each position, from 0, the same on every machine: SplitMix64 that begins with `key`."""
    return _mix((positions + 1) * _GAMMA + key)


def _mix(state: Int64s) -> Int64s:
    """The output function of SplitMix64: every bit of the state changes every bit of the result half of the time."""
    state = (state ^ _shifted(state, 30)) * _FIRST
    state = (state ^ _shifted(state, 27)) * _SECOND
    return state ^ _shifted(state, 31)


def _shifted(values: Int64s, bits: int) -> Int64s:
    """To the right with zeros coming in: `>>` of signed integers brings in copies of the sign."""
    return (values >> bits) & (2 ** (64 - bits) - 1)


@lru_cache(maxsize=_BLOCKS_KEPT)
def _places_of_block(sketch: CountSketch, block: int) -> Ints:
    """Places of positions block * _BLOCK and on."""
    return sketch.places(np.arange(block * _BLOCK, (block + 1) * _BLOCK))


def _pieces(update: ArrayLike | Iterable[ArrayLike]) -> Iterator[NDArray[Any]]:
    """The update as flat arrays, in order."""
    if isinstance(update, Mapping | str | bytes | None):
        raise ValueError(f"update: a {type(update).__name__} is not allowed; allowed: a vector, or tensors in order")
    of_numbers = isinstance(update, Sequence) and len(update) > 0 and np.ndim(update[0]) == 0
    if of_numbers or hasattr(update, "__array__") or not isinstance(update, Iterable):
        yield numbers("update", update).reshape(-1)  # type: ignore[arg-type]
        return
    for tensor in update:
        yield numbers("update", tensor).reshape(-1)
