from typing import Any

import numpy as np
import pytest
import torch

from equifl._numerics.distances import UpdateDistances
from equifl.sim.loop import pairwise_distances
from equifl.sim.loop.pairwise_distances import distances, renew

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("common", [0.0, 1e4])
def test_distances_on_the_device_are_those_of_the_library(common: float, device: str) -> None:
    rng = np.random.default_rng(0)
    updates = (common * rng.normal(size=50) + rng.normal(size=(3, 8, 50))).astype(np.float32)
    updates[0, 1] = updates[0, 0]
    updates[0, 2] = updates[0, 0] + np.float32(1e-3)
    found = distances(torch.from_numpy(updates).to(device)).cpu().numpy()
    for run in range(3):
        np.testing.assert_allclose(found[run], UpdateDistances(updates[run]).matrix(), rtol=1e-3, atol=1e-4)
        assert (found[run] == found[run].T).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reported", [[[1, 5], [0, 7]], [[3], []], [[2, 0, 6], [4]]])
def test_distances_of_those_who_reported_are_renewed(reported: list[list[int]], device: str) -> None:
    rng = np.random.default_rng(0)
    updates = torch.from_numpy((100 + rng.normal(size=(2, 8, 300))).astype(np.float32)).to(device)
    updates[1, 7] = torch.nan
    found = distances(updates)
    for run, ids in enumerate(reported):
        updates[run, ids] = torch.from_numpy((100 + rng.normal(size=(len(ids), 300))).astype(np.float32)).to(device)
    runs = [run for run, ids in enumerate(reported) if ids]
    renew(found, updates, runs, [np.array(reported[run]) for run in runs])
    torch.testing.assert_close(found, distances(updates), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert torch.equal(found.nan_to_num(-1), found.nan_to_num(-1).transpose(1, 2))


def test_runs_together_are_runs_one_by_one() -> None:
    rng = np.random.default_rng(0)
    updates = torch.from_numpy(rng.normal(size=(3, 9, 40)).astype(np.float32))
    updates[1, 4] = updates[1, 2]  # no distance at all: by direct difference
    who = np.array([[0, 8], [4, 2], [7, 1]])
    together, alone = (torch.full((3, 9, 9), torch.nan) for _ in range(2))
    pairwise_distances._renew(together, updates, torch.from_numpy(who), wait=True)
    renew(alone, updates, range(3), list(who))
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert together[1, 4, 2] == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("room", [1, 4, 100])
def test_without_a_wait_the_first_distances_are_mended(
    room: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairwise_distances, "_DIRECT", room * 40)
    generator = torch.Generator().manual_seed(0)
    updates, mine = (torch.randn(2, n, 40, generator=generator).to(device) for n in (9, 3))
    squared, lost = torch.zeros(2, 3, 9, device=device), torch.rand(2, 3, 9, generator=generator).to(device) < 0.3
    lost[-1, -1, -1] = True
    places = torch.nonzero(lost)
    expected = squared.clone()
    for run, row, other in places[:room].tolist():
        expected[run, row, other] = (mine[run, row] - updates[run, other]).square().sum()
    found, left = pairwise_distances._recompute_some(squared.clone(), lost, mine, updates)
    torch.testing.assert_close(found, expected)
    assert int(left) == max(0, len(places) - room)
    assert len(places) > 4
    none, left = pairwise_distances._recompute_some(squared.clone(), lost & False, mine, updates)
    assert torch.equal(none, squared)
    assert int(left) == 0


def test_distances_of_unknown_clients_are_nan() -> None:
    updates: Any = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32)
    updates[0, 2] = np.nan
    found = distances(torch.from_numpy(updates))[0].numpy()
    expected = np.isnan(updates[0, :, 0])
    assert np.array_equal(np.isnan(found), expected[:, None] | expected)
