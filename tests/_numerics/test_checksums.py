from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from equifl._numerics.checksums import checksums
from equifl.signals import Floats

Kind: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], Floats]


def signs(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.choice([-1.0, 1.0], size=shape)


def whole_numbers(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.integers(-3, 4, size=shape).astype(float)


def one_number(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.repeat(2.0 ** rng.integers(-5, 5, size=(shape[0], 1)), shape[1], axis=1)


def noise(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.normal(size=shape)


@pytest.mark.parametrize("kind", [signs, whole_numbers, one_number, noise])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 64])
def test_mixtures_of_two_rows_are_told_from_both(kind: Kind, dtype: type, length: int) -> None:
    rng = np.random.default_rng(0)
    old: Floats = kind(rng, (20_000, length)).astype(dtype)
    new: Floats = kind(rng, (20_000, length)).astype(dtype)
    torn = np.where(np.arange(length) < rng.integers(0, length + 1, size=(20_000, 1)), new, old)
    scattered = np.where(rng.random(old.shape) < 0.1, new, old)
    for mixture in (torn, scattered):
        for whole in (old, new):
            same = (mixture == whole).all(axis=1)
            np.testing.assert_array_equal(checksums(mixture) == checksums(whole), same)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_any_two_changed_bits_show(length: int) -> None:
    rows = np.random.default_rng(1).normal(size=(1, length)).astype(np.float32)
    bits = 32 * length
    changed = np.repeat(np.unpackbits(rows.view(np.uint8), axis=1), bits * bits, axis=0)
    first, second = np.divmod(np.arange(bits * bits), bits)
    changed[np.arange(bits * bits), first] ^= 1
    changed[np.arange(bits * bits), second] ^= 1  # twice the same: not changed
    found = checksums(np.packbits(changed, axis=1).view(np.float32))
    np.testing.assert_array_equal(found == checksums(rows), first == second)


def splitmix(state: int) -> int:
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) % 2**64
    return state ^ state >> 31


@pytest.mark.parametrize(("length", "size"), [(6, 8), (5, 4)])
def test_checksums_are_what_files_were_written_with(length: int, size: int) -> None:
    """Files are kept: with another definition all clients in them would be unknown."""
    rows = np.arange(3 * length, dtype="<f4").reshape(3, length)

    def total(row: bytes) -> int:
        words = [int.from_bytes(row[at : at + size], "little") for at in range(0, len(row), size)]
        weights = [splitmix((at + 1) * 0x9E3779B97F4A7C15 % 2**64) | 1 for at in range(len(words))]
        return sum(weight * (word ^ word >> 37) for weight, word in zip(weights, words, strict=True))

    nan = np.full(length, np.nan, "<f4").tobytes()
    assert checksums(rows).tolist() == [(total(row.tobytes()) - total(nan)) % 2**64 for row in rows]
