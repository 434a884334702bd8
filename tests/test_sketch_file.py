import errno
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import SignalStore, sketch_file
from equifl.signals import Floats
from equifl.sketch import CountSketch
from equifl.sketch_file import SketchFile, open_sketches, read_sketches

SKETCH = CountSketch(length=4, seed=9)


def filled(path: Path, clients: int = 3) -> SketchFile:
    """A file in which all numbers of a client are its id, plus 1."""
    sketches = open_sketches(path, clients, SKETCH)
    everybody = np.arange(clients)
    sketches.write(everybody, np.repeat(everybody + 1.0, 4).reshape(-1, 4))
    return sketches


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sketches.npy"


def test_what_is_written_is_there_when_opened_again(path: Path) -> None:
    open_sketches(path, 3, SKETCH).write(np.array([1]), np.array([[1, 2, 3, 4]]))
    again = open_sketches(path, 3, SKETCH).rows
    np.testing.assert_array_equal(again[1], [1, 2, 3, 4])
    assert np.isnan(again[[0, 2]]).all()
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), again)


def test_it_grows_in_place_by_any_number_of_digits(path: Path) -> None:
    first = open_sketches(path, 9, SKETCH, np.float16)
    first.write(np.array([8]), np.full((1, 4), 8.0))
    sketches = first
    for n in (10, 100, 100_001):
        sketches = sketches.grow(n)
        grown = sketches.rows
        assert grown.shape == (n, 4)
        assert grown.dtype == np.float16
        assert (grown[8] == 8).all()
        assert np.isnan(grown[9:]).all()
    first.write(np.array([0]), np.full((1, 4), 5.0))  # the old window looks at the same file
    sketches.write(np.array([100_000]), np.full((1, 4), 6.0))
    again = open_sketches(path, 100_001, SKETCH, np.float16).rows
    assert again[[0, 8, 100_000], 3].tolist() == [5, 8, 6]


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
    with pytest.raises(ValueError, match=r"no file of sketches \(an array of shape \(5,\) from byte 128\)"):
        open_sketches(path, 3, SKETCH)


def test_a_file_that_is_cut_off_or_whose_seed_is_lost_is_refused(path: Path) -> None:
    open_sketches(path, 3, SKETCH)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(ValueError, match="is cut off"):
        open_sketches(path, 3, SKETCH)
    path.with_name("sketches.npy.checks").unlink()
    with pytest.raises(
        ValueError, match=r"sketches.npy.checks, which says the seed of .*, cannot be read; put it back"
    ):
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
    filled(path)
    with path.open("ab") as file:
        file.write(b"x" * 1000)
    sketches = open_sketches(path, 3, SKETCH)
    grown = sketches.grow(50).rows
    assert grown[:3, 0].tolist() == [1, 2, 3]
    assert np.isnan(grown[3:]).all()


def half_written(rows: Floats) -> None:
    rows[1, :2] = 9


def half_forgotten(rows: Floats) -> None:
    rows[1, 2:] = np.nan


def swapped(rows: Floats) -> None:
    rows[1] = rows[2]


def zeros(rows: Floats) -> None:
    rows[1] = 0


@pytest.mark.parametrize("tear", [half_written, half_forgotten, swapped, zeros])
def test_a_torn_row_is_unknown_when_the_file_is_opened_again(tear: Callable[[Floats], None], path: Path) -> None:
    filled(path)
    tear(np.load(path, mmap_mode="r+"))
    with pytest.warns(UserWarning, match=r"memory_map: 1 of 3 sketches in .* do not match their checksums") as caught:
        store = SignalStore(3, sketch=SKETCH, memory_map=path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    signals = store.signals(0)
    assert signals.knows_update.tolist() == [True, False, True]
    np.testing.assert_array_equal(np.load(path), [[1] * 4, [np.nan] * 4, [3] * 4])
    store.observe([1], updates=[[5.0, 6.0, 7.0, 8.0]])
    again = SignalStore(3, sketch=SKETCH, memory_map=path).signals(0).updates  # and no warning
    np.testing.assert_array_equal(again, [[1] * 4, [5, 6, 7, 8], [3] * 4])


def test_a_row_that_was_written_and_its_checksum_not_is_unknown(path: Path) -> None:
    before = filled(path).checks.copy()
    open_sketches(path, 3, SKETCH).write(np.array([0, 2]), np.full((2, 4), 7.0))
    np.memmap(path.with_name("sketches.npy.checks"), np.uint64, "r+", 128, (3,))[:] = before
    with pytest.warns(UserWarning, match="memory_map: 2 of 3 sketches"):
        rows = open_sketches(path, 3, SKETCH).rows
    assert np.isnan(rows[:, 0]).tolist() == [True, False, True]


def test_every_wrong_byte_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch_file, "PATIENCE", 0.0)
    filled(path, clients=2)
    rows, checks = path, path.with_name("sketches.npy.checks")
    for file, start in ((rows, 128), (checks, 128)):
        whole = {each: each.read_bytes() for each in (rows, checks)}
        row_bytes = (len(whole[file]) - start) // 2
        for at in range(start, len(whole[file])):
            damaged = bytearray(whole[file])
            damaged[at] ^= 0x80
            file.write_bytes(damaged)
            with pytest.warns(UserWarning, match="memory_map: 1 of 2 sketches"):
                found = open_sketches(path, 2, SKETCH).rows
            client = (at - start) // row_bytes
            assert np.isnan(found[client]).all()
            assert (found[1 - client] == 2 - client).all()
            for each, content in whole.items():
                each.write_bytes(content)


@pytest.mark.parametrize("place", range(128))
def test_a_damaged_header_is_refused_or_does_not_matter(place: int, path: Path) -> None:
    filled(path)
    for file in (path, path.with_name("sketches.npy.checks")):
        whole = file.read_bytes()
        for bit in range(8):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                found = open_sketches(path, 3, SKETCH).rows
            except ValueError as error:
                message = str(error)
                assert message.startswith("memory_map: ")
            else:
                assert found[:, 0].tolist() == [1, 2, 3]
        file.write_bytes(whole)


def test_a_reader_waits_for_a_row_that_is_being_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch_file, "PATIENCE", 60.0)
    sketches = filled(path)
    news = np.full((1, 4), 9.0, np.float32)
    sketches.rows[1, :2] = news[0, :2]  # half of it
    timer = threading.Timer(0.05, lambda: sketches.write(np.array([1]), news))
    timer.start()
    np.testing.assert_array_equal(read_sketches(path, np.array([2, 1])), [[3] * 4, [9] * 4])
    timer.join()


def test_a_reader_does_not_wait_for_ever_and_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch_file, "PATIENCE", 0.01)
    filled(path).rows[1, :2] = 9
    content = path.read_bytes()
    np.testing.assert_array_equal(read_sketches(path, np.array([1, 0])), [[np.nan] * 4, [1] * 4])
    assert path.read_bytes() == content


CREATOR = """
import sys
from pathlib import Path
from equifl import SignalStore
from equifl.sketch import CountSketch
client, path = int(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    store = SignalStore(4, sketch=CountSketch(length=4, seed=9), memory_map=path.with_name(f"{number}.npy"))
    store.observe([client], updates=[[client + 1.0] * 4])
"""


@pytest.mark.slow
def test_several_processes_may_make_the_same_file_at_once(path: Path) -> None:
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR, str(client), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for client in range(4)
    ]
    for creator in creators:
        assert creator.stdout is not None
        creator.stdout.readline()
    for creator in creators:
        assert creator.stdin is not None
        creator.stdin.write("go\n")
        creator.stdin.flush()
    errors = [creator.communicate()[1] for creator in creators]
    assert errors == [""] * 4
    for number in range(20):
        assert open_sketches(path.with_name(f"{number}.npy"), 4, SKETCH).rows[:, 3].tolist() == [1, 2, 3, 4]
    assert len(list(path.parent.iterdir())) == 40


def test_whoever_comes_second_opens_what_the_first_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def first_comes(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        filled(path)
        fsync(file)

    monkeypatch.setattr(os, "fsync", first_comes)
    assert open_sketches(path, 3, SKETCH).rows[:, 0].tolist() == [1, 2, 3]
    assert sorted(found.name for found in path.parent.iterdir()) == ["sketches.npy", "sketches.npy.checks"]


def test_a_file_system_without_links_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refused)
    assert filled(path).rows[:, 0].tolist() == [1, 2, 3]
    assert sorted(found.name for found in path.parent.iterdir()) == ["sketches.npy", "sketches.npy.checks"]


def test_what_a_creator_that_was_killed_left_is_removed(path: Path) -> None:
    left = path.with_name(f"sketches.npy.{32 * 'a'}.unfinished")
    other = path.with_name("sketches.npy.mine.unfinished")
    left.touch()
    other.touch()
    open_sketches(path, 3, SKETCH)
    assert not left.exists()
    assert other.exists()


def test_checksums_whose_sketches_are_gone(path: Path) -> None:
    filled(path)
    path.unlink()
    with pytest.raises(ValueError, match=r"sketches.npy is missing, and .*.checks is of seed 9; delete it for seed 8"):
        open_sketches(path, 3, CountSketch(length=4, seed=8))
    with pytest.warns(UserWarning, match="memory_map: 3 of 3 sketches"):
        assert np.isnan(open_sketches(path, 3, SKETCH).rows).all()


def test_lost_checksums_make_their_rows_unknown(path: Path) -> None:
    filled(path)
    checks = path.with_name("sketches.npy.checks")
    checks.write_bytes(checks.read_bytes()[: 128 + 8])
    with pytest.warns(UserWarning, match="memory_map: 2 of 3 sketches"):
        assert open_sketches(path, 3, SKETCH).rows[0].tolist() == [1] * 4


def test_a_file_of_an_earlier_version_is_taken_with_a_warning(path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows[1, 2] = np.nan  # torn then
    np.save(path, rows)
    beside = path.with_name("sketches.npy.json")
    beside.write_text(json.dumps({"length": 4, "seed": 9}) + "\n")
    with pytest.raises(ValueError, match="sketches of seed 9; allowed: seed 8"):
        open_sketches(path, 3, CountSketch(length=4, seed=8))
    with pytest.warns(UserWarning, match="memory_map") as caught:
        found = open_sketches(path, 3, SKETCH).rows
    first, second = (str(warning.message) for warning in caught)
    assert "is of an earlier version; its sketches are taken unchecked" in first
    assert "memory_map: 1 of 3 sketches" in second
    np.testing.assert_array_equal(found, [rows[0], [np.nan] * 4, rows[2]])
    assert not beside.exists()
    np.testing.assert_array_equal(open_sketches(path, 3, SKETCH).rows, found)  # and no warning


@pytest.mark.parametrize("name", ["", "missing/sketches"])
def test_refuses_what_can_be_no_file(tmp_path: Path, name: str) -> None:
    message = r"memory_map: '.*' is not allowed; allowed: a file in a folder that is there"
    with pytest.raises(ValueError, match=message):
        open_sketches(tmp_path / name, 3, CountSketch(length=4))
    assert list(tmp_path.iterdir()) == []
