import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.experiment import atomic_write, run_folder
from equifl.experiment.config import Config
from equifl.experiment.records import record_line
from equifl.experiment.run_folder import DamageError, FolderBusyError, RunFolder

NAN = float("nan")
CONFIG = {"rounds": 9, "clients": 5, "seeds": (0,), "train": {"lr": 0.1}, "selectors": {"rota": {}}}
CONFIG |= {"data": {"name": "mine"}}
TWO = {"selectors": {"uniform": {}, "rota": {}}, "seeds": [0, 1]}
MADE_WITH = {"equifl": "0.1.0", "commit": None}


def opened(path: Path, **changes: Any) -> RunFolder:
    return RunFolder.open(path, CONFIG | changes, MADE_WITH)


def fails(*_: object, **__: object) -> None:
    raise OSError("no space, or whatever else a disk may say")


def row(round: int, **more: Any) -> dict[str, Any]:
    base = {"round": round, "selector": "rota", "seed": 0, "cohort": [], "local_loss": None}
    return base | {"bytes_down": 0, "bytes_up": 0} | more


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with opened(tmp_path / "run") as folder:
        yield folder


def test_a_new_folder_holds_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    opened(path).close()
    assert json.loads((path / "config.json").read_text()).keys() == {"config", "made_with", "format", "crc"}
    folder = RunFolder(path)
    assert folder.config == CONFIG | {"seeds": [0]}  # tuples are lists in JSON
    assert folder.made_with == MADE_WITH
    assert folder.rows() == []
    assert folder.load_checkpoint() is None


def test_the_same_configuration_continues_whatever_it_is_made_with(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append([row(0)])
    with RunFolder.open(str(tmp_path), CONFIG, {"equifl": "9"}) as folder:
        folder.append([row(1)])
    assert [r["round"] for r in folder.rows()] == [0, 1]
    assert folder.made_with == MADE_WITH


def test_a_key_that_says_nothing_may_be_newer_than_the_folder(tmp_path: Path) -> None:
    opened(tmp_path).close()
    opened(tmp_path, extra=None).close()
    assert "extra" not in RunFolder(tmp_path).config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"lr": 0.01}}, r"train\.lr: 0\.1 there, 0\.01 here"),
        ({"train": {"lr": 0.1, "model": "mlp"}}, r'train\.model: missing there, "mlp" here'),
        ({"train": {}}, r"train\.lr: 0\.1 there, missing here; train: missing there, \{\} here"),
        ({"seeds": [0, 1, 2]}, r"seeds\[2\]: missing there, 2 here"),
        ({"rounds": None}, r"rounds: 9 there, null here"),
        ({"selectors": {"uniform": {}}}, r"selectors\.rota: \{\} there, missing here"),
        ({"selectors": {"rota": {}, "uniform": {}}}, r"order: selectors\.uniform there, selectors\.rota here"),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, r"a: .*; b: .*; c: missing there, 3 here and 2 more\)"),
    ],
)
def test_refuses_another_configuration_by_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    opened(tmp_path, **TWO).close()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(ValueError, match=message + r".*choose another folder"):
        opened(tmp_path, **TWO | changes)
    assert (tmp_path / "config.json").read_bytes() == before
    opened(tmp_path, **TWO).close()  # and the refusal left no lock behind


def test_refuses_a_folder_of_something_else_and_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"not empty and no run folder .* choose another folder"):
        opened(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match=r"is no run folder \(it has no config\.json\)"):
        RunFolder(tmp_path)
    with pytest.raises(ValueError, match=r"thesis\.tex: is no folder"):
        opened(tmp_path / "thesis.tex")


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", "config.json.tmp"]])
def test_takes_a_folder_whose_run_was_killed_as_it_began(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch()
    opened(tmp_path).close()
    assert RunFolder(tmp_path).config["rounds"] == 9


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"config": {}}', '{"config": 3, "made_with": {}}', '{"a": NaN}']
)
def test_a_damaged_configuration_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for read in (RunFolder, opened):
        with pytest.raises(ValueError, match=r"config\.json: is damaged \(.*\); repair it, or choose another folder"):
            read(tmp_path)


def test_a_folder_in_place_of_the_records_is_named(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    (tmp_path / "run" / "rounds.jsonl").mkdir()
    for use in (RunFolder, opened):
        with pytest.raises(ValueError, match=r"rounds.jsonl: is a folder, expected the file of records; put the file"):
            use(tmp_path / "run")


def test_who_reads_cannot_write(folder: RunFolder) -> None:
    reader = RunFolder(folder.path)
    calls: list[tuple[str, Any]] = [("append", [[row(0)]]), ("keep_first", [0]), ("save_checkpoint", [{}])]
    for name, arguments in [*calls, ("finish", [])]:
        with pytest.raises(ValueError, match=r"open for reading only; RunFolder\.open"):
            getattr(reader, name)(*arguments)
    folder.close()
    with pytest.raises(ValueError, match="open for reading only"):
        folder.append([row(0)])


def test_rows_come_back_as_they_were_written(folder: RunFolder) -> None:
    rows = [row(0, third=1 / 3, note=None, name="\u00fc\n"), row(1, nested={"a": [{"b": True}]})]
    folder.append(rows)
    folder.append(iter([row(2)]))
    assert RunFolder(folder.path).rows() == folder.rows() == [*rows, row(2)]
    assert folder.rows(2) == rows


def test_numpy_values_and_mappings_are_welcome(folder: RunFolder) -> None:
    numbers = {"seed": np.uint8(0), "cohort": np.array([3, 1]), "loss": np.float64(0.1), "fair": np.bool_(True)}
    folder.append([MappingProxyType(row(0, **numbers))])
    assert folder.rows() == [row(0, cohort=[3, 1], loss=0.1, fair=True)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_survives_to_the_last_bit(values: list[float]) -> None:
    line = record_line(row(0, values=np.array(values)))
    assert json.loads(line)["values"] == values
    assert line == record_line(row(0, values=values))


def test_the_same_rows_give_the_same_bytes_interrupted_or_not(tmp_path: Path) -> None:
    rows = [row(r, loss=0.1 * r, cohort=np.arange(r)) for r in range(5)]
    with opened(tmp_path / "a") as folder:
        folder.append(rows)
    with opened(tmp_path / "b") as folder:
        folder.append(rows[:4])
    with opened(tmp_path / "b") as folder:
        folder.keep_first(3)
        folder.append(rows[3:])
    for name in ("rounds.jsonl", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (row(0, loss=NAN), r"loss in round 0, rota, seed 0: nan is not allowed; allowed: .*finite numbers, None"),
        (row(0, loss=-np.inf), r"loss in .*: -inf is not allowed"),
        (row(0, by_client={"accuracy": np.array([0.5, np.nan])}), r"by_client\.accuracy\[1\] in .*: nan is not"),
        (row(0, when={1, 2}), r"when in .*: \{1, 2\} is not allowed"),
        (row(0, table={(1, 2): 3}), r"keys must be .* not tuple in round 0, rota, seed 0; allowed"),
        ({"selector": "rota", "seed": 0}, r"round: None is not allowed; allowed: an integer of 0 or more"),
        (row(-1), r"round: -1 is not allowed"),
        (row(0, seed=0.5), r"seed: 0\.5 is not allowed"),
        (row(0, selector=3), r"selector: 3 is not allowed; allowed: a name"),
    ],
)
def test_refuses_what_cannot_be_written_and_writes_none_of_it(
    folder: RunFolder, wrong: dict[str, Any], message: str
) -> None:
    folder.append([row(0)])
    with pytest.raises(ValueError, match=message):
        folder.append([row(1), wrong])
    assert folder.rows() == [row(0)]


def test_refuses_nan_in_the_configuration_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.train\.lr: nan is not allowed"):
        opened(tmp_path / "run", train={"lr": NAN})
    assert not (tmp_path / "run").exists()


def test_half_a_last_row_is_never_seen_nor_glued_to(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append([row(0), row(1)])
    rounds = tmp_path / "rounds.jsonl"
    whole = rounds.read_bytes()
    for length in range(len(whole) + 1):
        rounds.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert RunFolder(tmp_path).rows() == [row(0), row(1)][:complete]
        with opened(tmp_path) as folder:
            folder.append([row(complete)])
            assert folder.rows() == [row(0), row(1), row(2)][: complete + 1]


def test_damage_before_the_last_row_is_named(folder: RunFolder) -> None:
    for damage in (b"{\n", b'{"round": "x", "selector": "rota", "seed": 0}\n', b"\0\0\n", b"\n"):
        (folder.path / "rounds.jsonl").write_bytes(record_line(row(0)) + damage + record_line(row(1)))
        with pytest.raises(ValueError, match=r"rounds\.jsonl, line 2: is damaged .*; put the whole file back"):
            folder.rows()


def test_any_flipped_bit_is_named_with_its_line_and_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append([row(0, cohort=[4, 2]), row(1, cohort=[1])])
    rounds = tmp_path / "rounds.jsonl"
    whole = rounds.read_bytes()
    for place in range(len(whole) - 1):
        for bit in (0, 3, 6):
            rounds.write_bytes(damaged := whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            line = 1 + whole[:place].count(b"\n")
            with opened(tmp_path) as folder, pytest.raises(DamageError, match=rf"rounds\.jsonl, line {line}: is dam"):
                folder.rows()
            assert rounds.read_bytes() == damaged


def test_any_flipped_bit_of_the_configuration_is_named(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / "config.json"
    whole = path.read_bytes()
    for place in range(len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"config\.json: is damaged"):
            RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 0, 1], r"line 2: is of round 0, uniform, seed 0; expected: round 0, uniform, seed 1; put"),
        ([0, 2, 1], r"line 2: is of round 0, rota, seed 0; expected: round 0, uniform, seed 1; put"),
        ([1, 2, 3], r"line 1: is of round 0, uniform, seed 1; expected: round 0, uniform, seed 0; put"),
        ([*range(5), 7], r"line 6: is of round 1, rota, seed 1; expected: round 1, uniform, seed 1; put"),
        ([*range(8), 7], r"line 9: is of round 1, rota, seed 1; expected: the end of the file; put"),
    ],
)
def test_rows_are_those_of_the_configuration_in_its_order(tmp_path: Path, order: list[int], message: str) -> None:
    rows = [row(r, selector=name, seed=seed) for r in (0, 1) for name in ("uniform", "rota") for seed in (0, 1)]
    with opened(tmp_path, **TWO, rounds=2) as folder:
        folder.append(rows[place] for place in order)
        with pytest.raises(DamageError, match=message):
            folder.rows()
        good, damage = folder.readable()
        assert good == rows[: len(good)]
        assert damage is not None
        assert not damage.at_end  # rows of something, which nobody may drop


def test_where_only_the_end_is_damaged_it_says_so(folder: RunFolder) -> None:
    folder.append([row(0), row(1), row(2)])
    rounds = folder.path / "rounds.jsonl"
    lines = rounds.read_bytes().splitlines(keepends=True)
    for end, at_end in (([b"\0\0\n", b"half"], True), ([b"\0\n", lines[2]], False), ([lines[1][5:]], True)):
        rounds.write_bytes(b"".join([lines[0], *end]))
        good, damage = folder.readable()
        assert good == [row(0)]
        assert damage is not None
        assert damage.at_end == at_end


def test_a_folder_of_an_earlier_version_has_no_checksums_and_goes_on(tmp_path: Path) -> None:
    opened(tmp_path).close()
    config, rounds = tmp_path / "config.json", tmp_path / "rounds.jsonl"
    config.write_text(json.dumps({key: json.loads(config.read_text())[key] for key in ("config", "made_with")}))
    rounds.write_text(old := json.dumps(row(0)) + "\n")
    with opened(tmp_path) as folder:
        folder.append([row(1)])
        assert folder.rows() == [row(0), row(1)]
    assert rounds.read_text().startswith(old)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    for name, lr in (("a", 0.1), ("b", 0.2)):
        with opened(tmp_path / name, train={"lr": lr}) as folder:
            folder.save_checkpoint(ARRAYS)
    shutil.copy(tmp_path / "b" / "checkpoint.npz", tmp_path / "a" / "checkpoint.npz")
    with pytest.raises(ValueError, match=r"checkpoint\.npz: cannot be used \(it is of another run\); put this run's"):
        RunFolder(tmp_path / "a").load_checkpoint()


def test_keep_first_forgets_all_later_rows_whatever_they_are(folder: RunFolder) -> None:
    folder.keep_first(0)  # nothing there yet
    folder.append([row(r) for r in range(4)])
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write('no row\n{"round": 1, "sel')
    folder.keep_first(2)
    assert folder.rows() == [row(0), row(1)]
    assert (folder.path / "rounds.jsonl").read_bytes().endswith(b"}\n")
    folder.keep_first(0)
    assert folder.rows() == []
    with pytest.raises(ValueError, match="rows: -1 is not allowed"):
        folder.keep_first(-1)


ARRAYS: dict[str, Any] = {
    "weights/conv1": np.arange(6, dtype=np.float32).reshape(2, 3),
    "round": np.array(3),
    "file": np.array([True, False]),  # names that np.savez keeps for itself
    "allow_pickle": np.array(["a", "bc"]),
    "fortran": np.asfortranarray(np.ones((2, 3))),
    "empty": np.zeros((0, 4)),
}


def assert_same(found: Mapping[str, Any] | None, expected: Mapping[str, Any]) -> None:
    assert found is not None
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_checkpoint_comes_back_bit_for_bit_and_is_never_pickled(folder: RunFolder) -> None:
    folder.append([row(0)])
    folder.save_checkpoint(ARRAYS)
    assert_same(RunFolder(folder.path).load_checkpoint(), ARRAYS)
    with np.load(folder.path / "checkpoint.npz") as plain:  # and anybody's numpy reads it
        assert_same({name: plain[name] for name in plain.files if name != "config.crc"}, ARRAYS)
    with pytest.raises(ValueError, match=r"model: dtype\('O'\) is not allowed; allowed: arrays of plain numbers"):
        folder.save_checkpoint({"round": np.array(4), "model": np.array([object()])})
    assert_same(folder.load_checkpoint(), ARRAYS)


@pytest.mark.parametrize(("owner", "name"), [(np.lib.format, "write_array"), (os, "fsync"), (Path, "replace")])
def test_a_write_that_fails_leaves_the_old_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    folder.append([row(0), row(1)])
    folder.save_checkpoint(ARRAYS)
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        with pytest.raises(OSError, match="no space"):
            folder.save_checkpoint({"round": np.array(4)})
        if name != "write_array":  # which rows do without
            with pytest.raises(OSError, match="no space"):
                folder.keep_first(1)
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before
    folder.save_checkpoint({"round": np.array(4)})
    assert_same(folder.load_checkpoint(), {"round": np.array(4)})


def test_a_full_disk_is_named_with_the_file_and_takes_all_rows_or_none(folder: RunFolder) -> None:
    resource = pytest.importorskip("resource")
    folder.append([row(0)])
    folder.save_checkpoint({"round": np.array(1)})
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))  # bytes a file
    try:
        with pytest.raises(OSError, match=r"run/rounds\.jsonl: cannot be written \(File too large\)"):
            folder.append([row(1), row(2), row(3), row(4)])
        with pytest.raises(OSError, match=r"run/checkpoint\.npz: cannot be written \(File too large\)"):
            folder.save_checkpoint(ARRAYS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before
    folder.append([row(1)])
    assert folder.rows() == [row(0), row(1)]


def test_a_finished_run_has_its_rows_and_no_checkpoint(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.append([row(0), row(1)])
    folder.save_checkpoint(ARRAYS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match=r"rounds\.jsonl: cannot be written \(no space"):
            folder.finish()
    assert_same(folder.load_checkpoint(), ARRAYS)  # rows that may not be on the disk yet can be made again
    folder.finish()
    assert folder.load_checkpoint() is None
    assert folder.rows() == [row(0), row(1)]
    folder.finish()  # nothing left to remove


def test_opening_leaves_whole_rows_as_they_are(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append([row(0)])
    os.utime(tmp_path / "rounds.jsonl", ns=(5, 5))
    with opened(tmp_path) as folder:
        folder.keep_first(1)
    assert (tmp_path / "rounds.jsonl").stat().st_mtime_ns == 5


def test_a_damaged_checkpoint_is_named_with_what_to_do(folder: RunFolder) -> None:
    folder.save_checkpoint({"weights": np.arange(50.0)})
    path = folder.path / "checkpoint.npz"
    whole = path.read_bytes()
    middle = whole.index(np.float64(25).tobytes())
    flipped = whole[:middle] + b"\xff" + whole[middle + 1 :]
    for damaged in [flipped, b"", *(whole[:length] for length in range(1, len(whole), 7))]:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"checkpoint\.npz: cannot be read \(.*\); delete it to run again"):
            folder.load_checkpoint()


def test_opening_changes_nothing_and_finishing_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append([row(0)])
        folder.save_checkpoint(ARRAYS)
    with (tmp_path / "rounds.jsonl").open("ab") as file:
        file.write(b"half")
    for name in ("config.json.tmp", "rounds.jsonl.tmp", "checkpoint.npz.tmp"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "report.html").touch()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with opened(tmp_path) as folder:
        assert folder.rows() == [row(0)]
        assert_same(folder.load_checkpoint(), ARRAYS)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        folder.finish()
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "config.json", "report.html", "rounds.jsonl"}


def test_every_write_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a power cut could take back is on the disk before the write is over."""
    synced: list[Path] = []
    monkeypatch.setattr(run_folder, "_sync_folder", synced.append)
    monkeypatch.setattr(atomic_write, "sync_folder", synced.append)
    with opened(tmp_path / "run") as folder:
        assert synced == [tmp_path, tmp_path / "run"]  # the folder, then its configuration
        folder.append([row(0), row(1)])
        folder.keep_first(1)
        assert synced[2:] == [tmp_path / "run"] * 2
        synced.clear()
        folder.append([row(1)])  # cheap: checkpoints sync the rows
        assert synced == []
        folder.save_checkpoint(ARRAYS)
        assert synced == [tmp_path / "run"]


def test_one_writer_at_a_time_and_any_reader(folder: RunFolder) -> None:
    with pytest.raises(FolderBusyError, match="is being written by another process"):
        opened(folder.path)
    assert RunFolder(folder.path).rows() == []
    folder.close()
    opened(folder.path).close()


def test_the_lock_is_the_folders_whichever_thread_has_it(folder: RunFolder) -> None:
    thread = threading.Thread(target=folder.close)
    thread.start()
    thread.join()
    opened(folder.path).close()


def test_a_refused_folder_is_not_left_locked(folder: RunFolder) -> None:
    folder.close()
    with pytest.raises(ValueError, match="holds a run with another configuration"):
        opened(folder.path, rounds=4)
    opened(folder.path).close()


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_without_locks_on_the_disk_it_warns(reason: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", refuses)
    with pytest.warns(UserWarning, match=r"cannot be locked .* one process writes it"):
        folder = opened(tmp_path)
    with folder:
        folder.append([row(0)])


HOLD_AND_WRITE = f"""
import sys
import numpy as np
from equifl.experiment.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1], {CONFIG | {"rounds": None, "seeds": [0, 1]}!r}, {{}})
weights = np.zeros(100_000)
round = 0
while True:
    row = dict(round=round, selector="rota", cohort=[], local_loss=None, bytes_down=0, bytes_up=0)
    folder.append([row | dict(seed=seed, values=weights[:2000]) for seed in range(2)])
    folder.save_checkpoint(dict(round=np.array(round), weights=weights + round))
    print(round, flush=True)
    round += 1
"""


def test_a_killed_writer_leaves_a_whole_run_and_no_lock(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    command = [sys.executable, "-c", HOLD_AND_WRITE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "0\n"
            with pytest.raises(ValueError, match="is being written by another process"):
                opened(tmp_path, rounds=None, seeds=[0, 1])
            for _ in range(5):
                writer.stdout.readline()
        finally:
            writer.kill()  # SIGKILL: it has no chance to clean up
    assert writer.returncode == -9
    with opened(tmp_path, rounds=None, seeds=[0, 1]) as folder:
        checkpoint = folder.load_checkpoint()
        assert checkpoint is not None
        done = int(checkpoint["round"])
        assert done >= 5
        assert (checkpoint["weights"] == done).all()
        folder.keep_first(2 * (done + 1))
        assert [(r["round"], r["seed"]) for r in folder.rows()] == [(r, s) for r in range(done + 1) for s in (0, 1)]


FLAT_RUN = Path(__file__).parent / "flat_run"  # by version 0.1.0 as it was when [data] held the partition, too
OF_FLAT_RUN = [
    "introduce=true",
    "rounds=2",
    "clients=6",
    "per_round=2",
    "seeds=[0]",
    "evaluate_every=1",
    "engine=general",
]
OF_FLAT_RUN += ["train.model=logistic", "selectors={uniform={}, rota={}}"]


def test_a_run_with_the_partition_among_the_data_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(FLAT_RUN, tmp_path / "run")
    partition = ["data.partition.kind=dirichlet", "data.partition.alpha=0.5"]
    config = Config.load(None, [*OF_FLAT_RUN, *partition])
    assert Config.from_table(RunFolder(FLAT_RUN).config) == config
    with RunFolder.open(tmp_path / "run", config.as_dict(), {}) as folder:
        assert folder.config["data"]["partition"]["alpha"] == 0.5
        assert folder.rows() == RunFolder(FLAT_RUN).rows() != []
    with pytest.raises(ValueError, match=r"another configuration \(data.partition.alpha: 0.5 there, 0.3 here\)"):
        RunFolder.open(
            tmp_path / "run", Config.load(None, [*OF_FLAT_RUN, partition[0], "data.partition.alpha=0.3"]).as_dict(), {}
        )
    with pytest.raises(ValueError, match=r"another configuration \(introduce: true there, false here\)"):
        RunFolder.open(
            tmp_path / "run", Config.load(None, [*OF_FLAT_RUN, *partition, "introduce=false"]).as_dict(), {}
        )
    assert caplog.messages == []


def test_an_alpha_of_a_stored_run_that_both_could_take_was_the_data_sets(tmp_path: Path) -> None:
    shutil.copytree(FLAT_RUN, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"digits"', '"synthetic"'))
    data = RunFolder(tmp_path / "run").config["data"]
    assert (data["alpha"], data["partition"]["kind"], data["partition"].get("alpha")) == (0.5, "dirichlet", None)
    same = ["data.name=synthetic", "data.alpha=0.5", "data.partition.kind=dirichlet"]
    RunFolder.open(tmp_path / "run", Config.load(None, [*OF_FLAT_RUN, *same]).as_dict(), {}).close()
