from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl._numerics.mapped import mapping, own_copy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", np.arange(6.0, dtype=np.float32).reshape(3, 2))
    return tmp_path / "rows.npy"


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_copy_of_a_mapped_file_is_changed_alone(file: Path, mode: Any) -> None:
    rows = np.load(file, mmap_mode=mode)
    copy = own_copy(rows.view(np.ndarray))
    copy[1] = 9
    assert copy.tolist() == [[0, 1], [9, 9], [4, 5]]
    assert rows.tolist() == np.load(file).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert mapping(copy) is None  # its file has other numbers


def test_a_copy_takes_what_was_changed_in_memory_alone(file: Path) -> None:
    rows = np.load(file, mmap_mode="c")
    rows[1] = 7
    assert own_copy(rows).tolist() == [[0, 1], [7, 7], [4, 5]]


def test_parts_and_deleted_files_are_copied_whole(file: Path) -> None:
    rows = np.load(file, mmap_mode="r")
    assert own_copy(rows[1:]).tolist() == [[2, 3], [4, 5]]
    assert own_copy(rows[:, ::-1]).tolist() == [[1, 0], [3, 2], [5, 4]]
    file.unlink()
    assert own_copy(rows).tolist() == rows.tolist()


def test_only_whole_maps_have_a_file(file: Path) -> None:
    rows = np.load(file, mmap_mode="r")
    found = mapping(rows.view(np.ndarray))
    assert found is not None
    assert str(found.filename) == str(file)
    for other in (rows[1:], rows.T, np.load(file, mmap_mode="c"), np.load(file)):
        assert mapping(other) is None
