import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.sketch import CountSketch, pseudorandom

NAN, INF = float("nan"), float("inf")


def plainly(update: Any, sketch: CountSketch) -> Any:
    """The definition: sum b is what is added at b less what is subtracted there."""
    sums = [0.0] * (2 * sketch.length)
    for place, value in zip(sketch.places(np.arange(len(update))), update, strict=True):
        sums[place] += float(value)
    return np.array([sums[b] - sums[b + sketch.length] for b in range(sketch.length)], np.float32)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**63 - 1))
def test_it_is_what_the_definition_says(d: int, length: int, seed: int) -> None:
    sketch = CountSketch(length=length, seed=seed)
    update = np.random.default_rng(d).normal(size=d)
    np.testing.assert_array_equal(sketch(update), plainly(update, sketch))


def test_the_hash_is_splitmix64() -> None:
    """The first outputs that its authors' program gives for the seed 1234567."""
    assert [int(value) % 2**64 for value in pseudorandom(np.arange(3), key=1234567)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_the_places_never_change() -> None:
    """Sketches are kept in files and made on other machines: a new hash would make them worthless."""
    positions = np.array([0, 1, 2, 3, 2**40, 2**63 - 2])
    assert CountSketch().places(positions).tolist() == [423, 179, 355, 168, 292, 420]
    assert CountSketch(seed=7).places(positions[:4]).tolist() == [440, 166, 396, 410]
    assert CountSketch(length=1000, seed=2**63 - 1).places(positions[:4]).tolist() == [413, 1498, 1227, 1027]


def test_torch_has_the_same_places() -> None:
    torch = pytest.importorskip("torch")
    for sketch in (CountSketch(), CountSketch(length=1000, seed=2**63 - 1)):
        places = sketch.places(torch.arange(2**63 - 10_001, 2**63 - 2))
        np.testing.assert_array_equal(places.numpy(), sketch.places(np.arange(2**63 - 10_001, 2**63 - 2)))
        np.testing.assert_array_equal(sketch.places(torch.arange(100_000)), sketch.places(np.arange(100_000)))


def test_another_process_makes_the_same_sketch() -> None:
    code = (
        "import numpy as np; from equifl.sketch import CountSketch;"
        "print(CountSketch(length=8, seed=3)(np.sin(np.arange(1000))).tobytes().hex())"
    )
    sketches = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert sketches == {CountSketch(length=8, seed=3)(np.sin(np.arange(1000))).tobytes().hex() + "\n"}


@given(st.lists(st.integers(0, 500), max_size=6))
def test_how_an_update_is_cut_changes_no_bit(cuts: list[int]) -> None:
    update = np.random.default_rng(0).normal(size=500).astype(np.float32)
    sketch = CountSketch(length=16)
    pieces = np.split(update, sorted(cuts))
    assert sketch(pieces).tobytes() == sketch(update).tobytes()
    assert sketch(piece for piece in pieces).tobytes() == sketch(update).tobytes()


def test_blocks_of_hashes_leave_no_seam() -> None:
    update = np.random.default_rng(0).normal(size=2 * 2**16 + 5)  # 2**16 positions are hashed at a time
    sketch = CountSketch(length=16)
    np.testing.assert_array_equal(sketch(update), plainly(update, sketch))
    assert sketch([update[:7], update[7:]]).tobytes() == sketch(update).tobytes()


def test_tensors_of_any_shape_and_type_come_in_their_order() -> None:
    sketch = CountSketch(length=16)
    matrix, vector = np.arange(6.0).reshape(2, 3).T, np.arange(4)
    flat = [*matrix.ravel().tolist(), *vector.tolist()]
    np.testing.assert_array_equal(sketch([matrix, vector]), sketch(flat))
    np.testing.assert_array_equal(sketch(iter(flat)), sketch(flat))
    np.testing.assert_array_equal(sketch(matrix.astype(np.float16)), sketch(matrix))


def test_rows_are_sketched_as_by_themselves() -> None:
    updates = np.random.default_rng(0).normal(size=(5, 70))
    sketch = CountSketch(length=8)
    np.testing.assert_array_equal(sketch.rows(updates), [sketch(update) for update in updates])
    assert sketch.rows(np.zeros((0, 3))).shape == (0, 8)


@given(st.integers(0, 100))
def test_the_mean_of_sketches_is_the_sketch_of_the_mean(seed: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(10, 300))
    sketch = CountSketch(length=32, seed=seed)
    np.testing.assert_allclose(sketch.rows(updates).mean(axis=0), sketch(updates.mean(axis=0)), atol=1e-6)


@pytest.mark.parametrize("length", [64, 256])
def test_distances_are_off_by_one_over_the_root_of_twice_the_length(length: int) -> None:
    """Over 400 seeds: the squared distance is right on average, and the distance deviates as promised."""
    rng = np.random.default_rng(0)
    difference = rng.normal(size=5000) * rng.exponential(size=5000)
    true = np.linalg.norm(difference)
    ratios = np.array([np.linalg.norm(CountSketch(length=length, seed=s)(difference)) for s in range(400)]) / true
    deviation = 1 / np.sqrt(2 * length)
    # A mean of 400 has a 20th of the deviation, a deviation from 400 is known to 3.5 %: five times these.
    assert abs(np.mean(ratios**2) - 1) < 5 * 2 * deviation / 20
    assert abs(np.std(ratios) / deviation - 1) < 5 * 0.036


def test_neighbours_and_seeds_are_independent() -> None:
    """A vector that is large in a few places only, where a poor hash would show: places of neighbours collide."""
    norms = []
    for seed in range(2000):
        update = np.zeros(8)
        update[[0, 1]] = 1.0
        norms.append(float(np.sum(CountSketch(length=4, seed=seed)(update) ** 2)))
    # 2 if not in one sum (3 in 4), else 4 or 0 with equal chance: mean 2, deviation 1.
    assert abs(np.mean(norms) - 2) < 5 / np.sqrt(2000)
    assert abs(np.std(norms) - 1) < 0.1


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e300])
def test_what_is_not_finite_shows(value: float) -> None:
    update = np.ones(100)
    update[17] = value
    sketch = CountSketch(length=8)(update)
    assert not np.isfinite(sketch).all()
    assert np.isfinite(sketch).sum() == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length: 0 is not allowed"),
        ({"length": 2.0}, "length: 2.0 is not allowed"),
        ({"length": 2**31}, "length: 2147483648 is not allowed"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"seed": 2**63}, "seed: .* allowed: below"),
        ({"seed": None}, "seed: None is not allowed"),
    ],
)
def test_wrong_parameters_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountSketch(**arguments)


def nothing() -> Iterator[Any]:
    yield from ()


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ([], "update: no numbers"),
        (nothing(), "update: no numbers"),
        (np.zeros((0, 3)), "update: no numbers"),
        (["a", "b"], "update: cannot be read as numbers"),
        ("ab", "update: a str is not allowed"),
        ({"weight": [1.0]}, "update: a dict is not allowed"),
        ([1j, 2j], "update: cannot be read as numbers"),
        ([1.0, [2.0, 3.0]], "update: cannot be read as numbers"),
        (None, "update: a NoneType is not allowed"),
    ],
)
def test_what_is_no_update_is_refused(update: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountSketch()(update)


@pytest.mark.parametrize("updates", [[1.0, 2.0], np.zeros((2, 0)), np.zeros((2, 2, 2))])
def test_rows_want_a_table(updates: Any) -> None:
    with pytest.raises(ValueError, match=r"updates: shape .* allowed: \(N, d\)"):
        CountSketch().rows(updates)
