import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import SignalStore
from equifl.sketch import CountSketch
from equifl.sketch_file import grow_sketches, open_sketches

SKETCH = CountSketch(length=4, seed=9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sketches.npy"


def test_what_is_written_is_there_when_opened_again(path: Path) -> None:
    open_sketches(path, 3, SKETCH)[1] = [1, 2, 3, 4]
    again = open_sketches(path, 3, SKETCH)
    np.testing.assert_array_equal(again[1], [1, 2, 3, 4])
    assert np.isnan(again[[0, 2]]).all()
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), again)


def test_it_grows_in_place_by_any_number_of_digits(path: Path) -> None:
    first = open_sketches(path, 9, SKETCH, np.float16)
    first[8] = 8
    for n in (10, 100, 100_001):
        grown = grow_sketches(path, n)
        assert grown.shape == (n, 4)
        assert grown.dtype == np.float16
        assert (grown[8] == 8).all()
        assert np.isnan(grown[9:]).all()
    first[0] = 5  # the old window looks at the same file
    assert (open_sketches(path, 100_001, SKETCH, np.float16)[0] == 5).all()


@pytest.mark.parametrize(
    ("clients", "sketch", "dtype", "message"),
    [
        (3, CountSketch(length=5, seed=9), np.float32, "sketches of length 4; allowed: length 5"),
        (3, CountSketch(length=4, seed=8), np.float32, "sketches of seed 9; allowed: seed 8"),
        (3, SKETCH, np.float16, "sketches of dtype float32; allowed: dtype float16"),
        (4, SKETCH, np.float32, "sketches of clients 3; allowed: clients 4"),
    ],
)
def test_other_sketches_are_refused_by_name(
    clients: int, sketch: CountSketch, dtype: type, message: str, path: Path
) -> None:
    open_sketches(path, 3, SKETCH)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"memory_map: .*{message}"):
        open_sketches(path, clients, sketch, dtype)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no sketches", b"\x93NUMPY\x02\x00"])
def test_a_file_of_something_else_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"memory_map: .* is no file of sketches"):
        open_sketches(path, 3, SKETCH)
    assert path.read_bytes() == content


def test_one_row_of_numbers_is_refused(path: Path) -> None:
    np.save(path, np.zeros(5))
    with pytest.raises(ValueError, match=r"no file of sketches \(an array of shape \(5,\)\)"):
        open_sketches(path, 3, SKETCH)


def test_a_file_that_is_cut_off_or_whose_seed_is_lost_is_refused(path: Path) -> None:
    open_sketches(path, 3, SKETCH)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(ValueError, match="is cut off"):
        open_sketches(path, 3, SKETCH)
    path.with_name("sketches.npy.json").unlink()
    with pytest.raises(ValueError, match=r"sketches.npy.json, which says the seed of .*, cannot be read"):
        open_sketches(path, 3, SKETCH)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may become longer than a hundred thousand bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("fallocate", [True, False])
def test_a_full_disk_is_an_error_before_there_is_a_file(
    fallocate: bool, path: Path, full_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(OSError, match="memory_map: the disk has no room for 15 MiB of sketches"):
        SignalStore(1_000_000, sketch=SKETCH, memory_map=path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("fallocate", [True, False])
def test_a_full_disk_while_growing_leaves_the_store_as_it_was(
    fallocate: bool, path: Path, full_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
    store = SignalStore(3, sketch=SKETCH, memory_map=path)
    store.observe([1], losses=[1.0], updates=[[1.0, 2.0, 3.0, 4.0]], round=0)
    state, content = store.state_dict(), path.read_bytes()
    with pytest.raises(OSError, match="memory_map: the disk has no room"):
        store.grow(1_000_000)
    assert len(store) == store.signals(1).n == 3
    np.testing.assert_equal(store.state_dict(), state)
    assert path.read_bytes() == content
    store.grow(4)
    assert store.signals(1).n == 4


def test_another_error_of_the_disk_is_passed_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "posix_fallocate", broken, raising=False)
    with pytest.raises(OSError, match="broken"):
        open_sketches(path, 3, SKETCH)
    assert not path.exists()


def test_what_an_interrupted_growth_left_does_not_matter(path: Path) -> None:
    open_sketches(path, 3, SKETCH)[:] = 1
    with path.open("ab") as file:
        file.write(b"x" * 1000)
    assert (open_sketches(path, 3, SKETCH) == 1).all()
    grown = grow_sketches(path, 50)
    assert (grown[:3] == 1).all()
    assert np.isnan(grown[3:]).all()
