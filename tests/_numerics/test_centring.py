from typing import Any

import numpy as np
import pytest

from equifl._numerics import centring, threads
from equifl._numerics.bounds import Bounds
from equifl._numerics.centring import CentredUpdates, survey, widened


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("copy_limit", [0, 2**30])
@pytest.mark.parametrize("magnitude", [1.0, 1e-3])
def test_parts_are_the_rows_less_their_mean(dtype: Any, copy_limit: int, magnitude: float) -> None:
    updates = (3 + magnitude * np.random.default_rng(0).normal(size=(50, 7))).astype(dtype)
    ids = np.flatnonzero(np.arange(50) % 3)
    centred = CentredUpdates(updates, ids, copy_limit=copy_limit)
    expected = updates[ids].astype(np.float64) - updates[ids].mean(axis=0, dtype=np.float64)
    assert centred.shape == (33, 7)
    for rows in (slice(5, 20), np.array([4, 0, 32])):
        np.testing.assert_allclose(centred.part(rows, np.empty((33, 7), np.float32)), expected[rows], atol=1e-6)
    np.testing.assert_allclose(centred.squares, (expected**2).sum(axis=1), rtol=1e-3)
    difference = centred.differences(centred.raw(np.array([3])), np.array([4]))
    np.testing.assert_allclose(difference, (expected[3] - expected[4])[None], atol=1e-7)


@pytest.mark.parametrize("magnitude", [1e-300, 1e-40, 1e-28, 1e-20, 1e20, 1e28, 1e37, 1e300])
def test_very_small_and_very_large_numbers_come_in_their_own_unit(magnitude: float) -> None:
    updates = magnitude * np.random.default_rng(0).normal(size=(20, 3))
    centred = CentredUpdates(updates)
    assert 1 <= np.abs(centred.part(slice(0, 20))).max() < 2
    expected = updates - updates.mean(axis=0)
    np.testing.assert_allclose(
        centred.bounds.unit * centred.part(slice(0, 20)).astype(np.float64), expected, rtol=1e-4
    )


def test_survey_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = np.random.default_rng(0).normal(size=(130, 20))
    ids = np.arange(3, 120)
    monkeypatch.setattr(centring, "_SHARE_BYTES", 4 * 20 * 10)
    long = np.linalg.norm(updates[ids], axis=1)
    seen = survey(updates, ids, Bounds(wide=True), limit=float(np.median(long)))
    np.testing.assert_allclose(seen.mean, updates[ids].mean(axis=0))
    assert seen.reach == pytest.approx(np.abs(updates[ids] - seen.mean).max())
    assert (seen.plausible, seen.longest) == pytest.approx((np.median(long), long.max()))


def test_the_mean_does_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centring, "_SHARE_BYTES", 4 * 20 * 100)
    monkeypatch.setattr(threads, "_WORTH_THREADS", 1)
    updates = np.random.default_rng(0).normal(size=(1300, 20)).astype(np.float32)
    rows = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        rows.append(CentredUpdates(updates).part(slice(0, 1300)).tobytes())
    assert len(set(rows)) == 1


def test_every_finite_half_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)][None]
    assert widened(halves).tobytes() == halves.astype(np.float32).tobytes()
