import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.aggregators.last_updates import LastUpdates, empty, grown, map_rows, reopened, saved

LIKE = np.zeros((1, 3), np.float32)


def row(number: float) -> Any:
    return np.full((1, 3), number, np.float32)


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint holds of it."""
    return {name: part.copy() for name, part in state.items() if name not in ("updates", "saved")}


def test_a_killed_process_loses_nothing_that_its_checkpoint_names(tmp_path: Path) -> None:
    rows = map_rows(tmp_path / "memory.npy", 1, 4, 3)
    state = empty("file", 4, LIKE, rows[0])
    y = LastUpdates(state, LIKE)
    y[np.array([0])], y[np.array([1])] = row(1), row(2)
    checkpoint = stored(state)
    saved(state)
    for number in (3, 4, 5):  # after the checkpoint: the same client more than once
        y[np.array([1])] = row(number)
        y[np.array([2])] = row(10 * number)
    assert y[np.arange(4)][:, 0].tolist() == [1, 5, 50, 0]
    again = reopened(checkpoint, map_rows(tmp_path / "memory.npy", 1, 4, 3)[0])
    assert LastUpdates(again, LIKE)[np.arange(4)][:, 0].tolist() == [1, 2, 0, 0]


def test_a_checkpoint_that_was_not_written_does_not_count(tmp_path: Path) -> None:
    rows = map_rows(tmp_path / "memory.npy", 1, 2, 3)
    state = empty("file", 2, LIKE, rows[0])
    y = LastUpdates(state, LIKE)
    y[np.array([0])] = row(1)
    first = stored(state)
    saved(state)
    y[np.array([0])] = row(2)
    stored(state)  # and the disk was full
    y[np.array([0])] = row(3)
    assert LastUpdates(reopened(first, rows[0]), LIKE)[np.array([0])].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("damage", ["row", "slot", "clients"])
def test_rows_of_another_run_or_damaged_ones_are_refused(damage: str, tmp_path: Path) -> None:
    rows = map_rows(tmp_path / "memory.npy", 1, 2, 3)
    state = empty("file", 2, LIKE, rows[0])
    LastUpdates(state, LIKE)[np.array([0])] = row(1)
    checkpoint = stored(state)
    if damage == "row":
        rows[0, 1, 0, 2] = 7
    elif damage == "slot":
        checkpoint["slots"][0] = 2
    else:
        checkpoint["slots"] = checkpoint["slots"][:1]
    with pytest.raises(ValueError, match="the file of the server's memory has other rows than it was made with"):
        reopened(checkpoint, rows[0])


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    map_rows(tmp_path / "memory.npy", 1, 2, 3)
    with pytest.raises(
        ValueError, match=r"memory.npy: has float32 of shape \(1, 2, 2, 3\), expected .* \(1, 2, 2, 4\)"
    ):
        map_rows(tmp_path / "memory.npy", 1, 2, 4)
    (tmp_path / "memory.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"memory.npy: cannot be read"):
        map_rows(tmp_path / "memory.npy", 1, 2, 3)


def test_a_full_disk_is_said_before_the_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"server.aggregate.keep: the disk has no room for 2\d* MiB"):
        map_rows(tmp_path / "memory.npy", 1, 100, 2**15)
    assert not list(tmp_path.iterdir())


def test_rows_are_the_same_in_every_form() -> None:
    rng = np.random.default_rng(0)
    updates, p = rng.normal(size=(5, 3)).astype(np.float32), rng.dirichlet(np.ones(9))
    ids = np.array([7, 1, 2, 8, 4])
    for keep in ("whole", "float16", "file"):
        y = LastUpdates(empty(keep, 9, LIKE), LIKE)
        y[ids] = updates
        np.testing.assert_allclose(y[ids], updates, rtol=1e-3, atol=2e-3)
        np.testing.assert_allclose(y.weighted_sum(p), p[ids] @ updates, atol=2e-3)
        assert y[np.array([0, 3])].tolist() == [[0, 0, 0], [0, 0, 0]]
        assert len(y) == 9


def test_a_sum_over_many_clients_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equifl.aggregators.last_updates._AT_A_TIME", 7)
    test_rows_are_the_same_in_every_form()


def test_a_file_does_not_grow() -> None:
    with pytest.raises(ValueError, match=r"population: 5 is not allowed; allowed: at most 4, for which the file was"):
        grown(empty("file", 4, LIKE), 5)
