import numpy as np
import pytest

from equifl import Signals
from equifl._numerics.similarities import angles, cosines
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
