import numpy as np
import pytest

from equifl import Signals
from equifl._numerics.similarities import angles, cosines, row_cosines
from equifl.signals import Floats


def by_definition(updates: Floats) -> Floats:
    lengths = np.linalg.norm(updates, axis=1)
    found = updates @ updates.T / np.where(lengths > 0, lengths, 1)[:, None] / np.where(lengths > 0, lengths, 1)
    np.fill_diagonal(found, 1.0)
    return found


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_by_definition_from_updates_and_from_distances_with_lengths(scale: float) -> None:
    updates = scale * np.random.default_rng(0).normal(size=(12, 5))
    updates[3] = 0
    ids = np.array([7, 3, 1, 11])
    apart = np.linalg.norm(updates[:, None] - updates, axis=2)
    for signals in (Signals(updates=updates), Signals(distances=apart, lengths=np.linalg.norm(updates, axis=1))):
        assert cosines(signals, ids) == pytest.approx(by_definition(updates[ids]), abs=1e-5)
        assert angles(signals, ids) == pytest.approx(np.arccos(by_definition(updates[ids]).clip(-1, 1)), abs=1e-2)


def test_without_lengths_they_are_those_about_the_mean() -> None:
    updates = np.random.default_rng(0).normal(size=(12, 5)) + 7
    apart = np.linalg.norm(updates[:, None] - updates, axis=2)
    found = cosines(Signals(distances=apart), np.arange(12))
    assert found == pytest.approx(by_definition(updates - updates.mean(axis=0)), abs=1e-5)


def test_updates_beyond_float32_have_the_angles_of_their_directions() -> None:
    updates = np.random.default_rng(0).normal(size=(6, 4))
    scales = np.array([1e39, 1e300, 1e-320, 1.0, 1e-50, 1e150])[:, None]
    assert row_cosines(updates * scales, np.arange(6)) == pytest.approx(by_definition(updates), abs=1e-3)
    assert cosines(Signals(updates=updates * scales), np.arange(6)) == pytest.approx(by_definition(updates), abs=1e-3)


def test_lengths_of_extreme_ratios_give_cosines() -> None:
    """One that is far longer has a right angle to the rest, as far as distances can say."""
    updates = np.random.default_rng(0).normal(size=(5, 4))
    apart, lengths = np.linalg.norm(updates[:, None] - updates, axis=2), np.linalg.norm(updates, axis=1)
    expected = by_definition(updates)
    for long, short in ((1e200, 1e-200), (1e300, 1e-320), (1e308, 1.0)):
        apart[0], apart[:, 0] = long, long
        apart[0, 0] = 0.0
        lengths[0], lengths[1] = long, short
        apart[1, 2:] = apart[2:, 1] = lengths[2:]
        found = cosines(Signals(distances=apart, lengths=lengths), np.arange(5))
        assert found[2:, 2:] == pytest.approx(expected[2:, 2:], abs=1e-5)
        assert found[0, 1:] == pytest.approx(np.zeros(4), abs=1e-5)
        assert np.isfinite(found).all()
        assert (abs(found) <= 1).all()


def test_lengths_that_contradict_distances_still_give_numbers() -> None:
    values = np.array([0.0, 1e-320, 1e-200, 1.0, 1e200, 1e308])
    for far in values:
        apart = far * (1 - np.eye(len(values)))
        found = cosines(Signals(distances=apart, lengths=values), np.arange(len(values)))
        assert (abs(found) <= 1).all()
