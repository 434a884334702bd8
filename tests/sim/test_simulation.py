import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.experiment.callbacks import Callback
from equifl.experiment.checkpoint import read_checkpoint, write_checkpoint
from equifl.experiment.config import Config
from equifl.experiment.results import Records, Results, load_results
from equifl.experiment.run_folder import CHECKPOINT, RunFolder
from equifl.report.page import make_page
from equifl.sim import players, playing
from equifl.sim.loop.federation import Federation
from equifl.sim.players import choose_device, made_with, revision
from equifl.sim.playing import finished_results
from equifl.sim.simulation import simulate

ROOT = Path(__file__).parents[2]
TINY = ["rounds=3", "clients=10", "per_round=2", "seeds=[0]", "train.model=logistic", "train.steps=1"]
TINY += ["data.name=synthetic", "data.partition=natural"]
CONFIG = Config.load(None, TINY)


class Stop(Callback):
    """Stops an experiment after so many rounds."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, played: int, records: Records) -> bool:
        return played < self._after


def play(folder: Path, stop_after: int = 10**6) -> bool:
    """Whether it is finished."""
    return simulate(CONFIG, out=folder, device="cpu", callbacks=[Stop(stop_after)]).finished


def never(*_: Any) -> Any:
    raise AssertionError("there is nothing left to play")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert play(folder)
    return (folder / "rounds.jsonl").read_bytes()


@pytest.mark.parametrize("kept", [0, 5])
def test_records_that_went_missing_are_noticed(kept: int, tmp_path: Path) -> None:
    assert not play(tmp_path / "run", stop_after=2)
    rounds = tmp_path / "run" / "rounds.jsonl"
    lines = rounds.read_text().splitlines(keepends=True)
    assert len(lines) == 12  # six selectors, two rounds
    rounds.write_text("".join(lines[:kept]))
    with pytest.raises(ValueError, match=rf"rounds.jsonl: {kept} records where the checkpoint has 12; put the whole"):
        play(tmp_path / "run")
    assert rounds.read_text() == "".join(lines[:kept])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [*range(7), *range(8, 18)],
            "line 8: is of round 1, divfl, seed 0; expected: round 1, power_of_choice, seed 0",
        ),
        ([*range(7), *range(6, 18)], "line 8: is of round 1, uniform, seed 0; expected: round 1, power_of_choice, s"),
        ([*range(18), 17], "line 19: is of round 2, rota, seed 0; expected: the end of the file"),
    ],
)
def test_records_of_a_finished_run_with_a_hole_are_refused_and_not_dropped(
    lines: list[int], message: str, tmp_path: Path, uninterrupted: bytes
) -> None:
    assert play(tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    whole = uninterrupted.splitlines(keepends=True)
    damaged = b"".join(whole[line] for line in lines)
    rounds.write_bytes(damaged)
    assert finished_results(tmp_path / "run", CONFIG) is None
    with pytest.raises(ValueError, match=rf"rounds\.jsonl, {message}.*; put the whole file back"):
        play(tmp_path / "run")
    assert rounds.read_bytes() == damaged


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after two of three rounds, with the checkpoint of one."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert not play(folder, stop_after=1)
    checkpoint = (folder / CHECKPOINT).read_bytes()
    assert not play(folder, stop_after=2)
    (folder / CHECKPOINT).write_bytes(checkpoint)
    return folder


def without(array: Any) -> None:
    return None


CHANGES: dict[str, Any] = {
    "is missing": without,
    "has an axis more": lambda array: array[None],
    "has another type": lambda array: array.astype(np.float16),
    "is shorter": lambda array: array[..., :-1] if array.ndim else np.zeros(0, array.dtype),
}
KEYS = [
    "models",
    "recent",
    "updates",
    "distances",
    "store.losses",
    "store.available",
    "store.progress",
    "server.parts",
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("key", [*KEYS, "rounds_played"])
def test_a_checkpoint_with_an_array_that_is_wrong_is_refused_in_one_sentence(
    change: str, key: str, stopped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    arrays = read_checkpoint(folder / CHECKPOINT)
    assert arrays is not None
    changed = CHANGES[change](arrays.pop(key))
    write_checkpoint(folder / CHECKPOINT, arrays if changed is None else {**arrays, key: changed})
    before = files(folder)
    with pytest.raises(
        ValueError, match=rf"checkpoint\.npz: cannot be used \(checkpoint: .*`?{key}`?.*delete it to run"
    ):
        play(folder)
    assert files(folder) == before


def test_a_checkpoint_of_another_model_is_refused(stopped: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(stopped, folder)
    simulate(CONFIG, out=other, device="cpu", callbacks=[Stop(1)], model="mlp")
    arrays = read_checkpoint(other / CHECKPOINT)
    mine = read_checkpoint(folder / CHECKPOINT)
    assert arrays is not None
    assert mine is not None
    for name, message in (
        ("config.crc", r"`updates` is float32 of shape .*, expected float32"),
        ("", "of another run"),
    ):
        write_checkpoint(folder / CHECKPOINT, arrays | ({name: mine[name]} if name else {}))
        before = files(folder)
        with pytest.raises(ValueError, match=rf"checkpoint\.npz: cannot be used \(.*{message}"):
            play(folder)
        assert files(folder) == before


@pytest.mark.parametrize("line", [*range(1, 13)])
def test_damage_before_the_checkpoint_is_refused_and_after_it_is_made_again(
    line: int, stopped: Path, tmp_path: Path, uninterrupted: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Six selectors: the checkpoint has the first six records."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    rounds = folder / "rounds.jsonl"
    lines = rounds.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"cohort", b"cohosu")
    rounds.write_bytes(b"".join(lines))
    before = files(folder)
    if line <= 6:
        with pytest.raises(
            ValueError, match=rf"rounds\.jsonl, line {line}: is damaged \(its checksum does not match\)"
        ):
            play(folder)
        assert files(folder) == before
    else:
        assert play(folder)
        assert rounds.read_bytes() == uninterrupted
        assert f"line {line}: is damaged (its checksum does not match); it is after the checkpoint" in caplog.text


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.5, 0.99])
def test_a_finished_run_that_lost_its_end_gets_it_back_and_keeps_the_rest(
    kept: float, tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    rounds.write_bytes(uninterrupted[: int(kept * len(uninterrupted))])
    appended: list[int] = []
    append = RunFolder.append

    def appending(self: RunFolder, rows: Any) -> None:
        appended.append(len(rows))
        append(self, rows)

    monkeypatch.setattr(RunFolder, "append", appending)
    assert play(tmp_path / "run")
    assert rounds.read_bytes() == uninterrupted
    assert sum(appended) == 18 - uninterrupted[: int(kept * len(uninterrupted))].count(b"\n")


def test_records_that_come_out_otherwise_are_not_replaced(
    tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    rounds.write_bytes(uninterrupted[:-1])  # the last record is only half there
    before = files(tmp_path / "run")
    played = Federation.play

    def otherwise(self: Federation) -> Any:
        return [record | {"local_loss": 7.0} if record["round"] else record for record in played(self)]

    monkeypatch.setattr(Federation, "play", otherwise)
    with pytest.raises(
        ValueError, match=r"rounds\.jsonl, line 7: comes out otherwise when it is played again .*; delete"
    ):
        play(tmp_path / "run")
    assert files(tmp_path / "run") == before


def test_a_run_of_an_earlier_version_goes_on_from_its_checkpoint(
    stopped: Path, tmp_path: Path, uninterrupted: bytes
) -> None:
    """It has neither checksums nor the memory of the server rule."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: stored[key] for key in ("config", "made_with")}))
    old = plain((folder / "rounds.jsonl").read_bytes())
    (folder / "rounds.jsonl").write_bytes(old)
    arrays = read_checkpoint(folder / CHECKPOINT)
    assert arrays is not None
    kept = {name: array for name, array in arrays.items() if name not in ("config.crc", "server.parts")}
    kept["apart"] = kept.pop("distances")
    write_checkpoint(folder / CHECKPOINT, kept)
    assert play(folder)
    found = (folder / "rounds.jsonl").read_bytes()
    assert plain(found) == plain(uninterrupted)
    assert found.splitlines()[:6] == old.splitlines()[:6]  # as they were


def plain(rounds: bytes) -> bytes:
    return re.sub(rb', "crc": "[0-9a-f]{8}"}', b"}", rounds)


@pytest.mark.parametrize("most", [players.KEPT_BYTES, 1000])
def test_a_finished_run_keeps_a_small_checkpoint_and_has_nothing_left_to_play(
    most: int, tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "KEPT_BYTES", most)
    monkeypatch.setattr(players, "CHECKPOINT_SECONDS", -1.0)
    assert play(tmp_path / "run")
    kept = {CHECKPOINT} if most > 1000 else set()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.json", "rounds.jsonl"} | kept
    monkeypatch.setattr(Federation, "play", never)
    assert play(tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == uninterrupted
    found = finished_results(tmp_path / "run", CONFIG)
    assert found is not None
    assert found.records == RunFolder(tmp_path / "run").rows()


def test_an_unfinished_run_has_a_checkpoint_and_is_not_taken_for_finished(tmp_path: Path) -> None:
    assert finished_results(tmp_path / "run", CONFIG) is None
    assert not (tmp_path / "run").exists()
    assert not play(tmp_path / "run", stop_after=2)
    assert (tmp_path / "run" / CHECKPOINT).exists()
    assert finished_results(tmp_path / "run", CONFIG) is None
    assert (tmp_path / "run" / CHECKPOINT).exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_beside_complete_records_is_not_read(
    damaged: bool, tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for more rounds; one that was killed at the last moment may have left an earlier one."""
    assert play(tmp_path / "run")
    checkpoint = tmp_path / "run" / CHECKPOINT
    monkeypatch.setattr(Federation, "play", never)
    for again in (lambda: finished_results(tmp_path / "run", CONFIG), lambda: play(tmp_path / "run")):
        with RunFolder.open(tmp_path / "run", CONFIG.as_dict(), {}) as folder:
            folder.save_checkpoint({"rounds_played": np.array(3)})
        if damaged:
            checkpoint.write_bytes(b"half of it")
        before = checkpoint.read_bytes()
        assert again()
        assert checkpoint.read_bytes() == before
        assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == uninterrupted


# Kills the process at one moment of a run's end, by the signal that nobody can catch.
KILLED = """
import os, signal, sys
from pathlib import Path
from equifl.experiment import run_folder as records
from equifl.sim import players, playing
from tests.sim.test_simulation import CONFIG, play

folder, moment, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
players.CHECKPOINT_SECONDS = seconds
append, sync, save = records.RunFolder.append, records._sync_folder, records.RunFolder.save_checkpoint

def die_at(now):
    if now == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def appending(self, rows):
    if moment == "half of the last records" and rows[0]["round"] == CONFIG.rounds - 1:
        text = b"".join(records.record_line(row) for row in rows)
        with (self.path / records.ROUNDS).open("ab") as file:
            file.write(text[: len(text) // 2])
        die_at(moment)
    append(self, rows)
    if rows[0]["round"] == CONFIG.rounds - 1:
        die_at("all records")

def saving(self, arrays):
    last = int(arrays["rounds_played"]) == CONFIG.rounds
    die_at("before the last checkpoint" if last else "")
    save(self, arrays)
    die_at("the last checkpoint" if last else "")

def syncing(path):
    sync(path)
    die_at("folder on the disk" if path == folder and (folder / records.CHECKPOINT).exists() else "")

records.RunFolder.append, records._sync_folder, records.RunFolder.save_checkpoint = appending, syncing, saving
play(folder)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("half of the last records", -1.0),  # a checkpoint after every round
        ("half of the last records", 1e9),  # and none
        ("all records", -1.0),
        ("all records", 1e9),
        ("before the last checkpoint", -1.0),
        ("before the last checkpoint", 1e9),
        ("the last checkpoint", -1.0),
        ("folder on the disk", 1e9),
    ],
)
def test_killed_as_it_ends_it_goes_on_to_the_same_bytes(
    moment: str, seconds: float, tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(folder), moment, str(seconds)]
    killed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    rounds = folder / "rounds.jsonl"
    assert (folder / CHECKPOINT).exists() == (seconds < 0 or moment == "folder on the disk")
    complete = rounds.read_bytes() == uninterrupted
    assert complete == (moment != "half of the last records")
    if complete:
        monkeypatch.setattr(Federation, "play", never)
    assert play(folder)
    assert rounds.read_bytes() == uninterrupted


def test_a_checkpoint_that_the_disk_refuses_does_not_end_a_run(
    tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    save = RunFolder.save_checkpoint

    def on_a_full_disk(self: RunFolder, arrays: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # bytes a file
        try:
            save(self, arrays)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(players, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(RunFolder, "save_checkpoint", on_a_full_disk)
    with pytest.raises(OSError, match=r"checkpoint\.npz: cannot be written \(File too large\)"):
        play(tmp_path / "stopped", stop_after=1)  # who asks it to stop must know that there is no checkpoint
    assert play(tmp_path / "run")
    warning = (
        f"{tmp_path / 'run' / CHECKPOINT}: cannot be written (File too large); the run goes on and tries again later"
    )
    last = warning.replace("goes on and tries again later", "is finished without it")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [warning, warning, last]
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == uninterrupted


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there: Any = {"value": False}
    monkeypatch.setattr("torch.cuda.is_available", lambda: there["value"])
    assert choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match=r"device: 'cuda' is not allowed; .* PyTorch finds no GPU"):
        choose_device("cuda")
    there["value"] = True
    assert choose_device("auto") == choose_device("cuda") == "cuda"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a file, committed, in a repository that has other files as well."""
    found = tmp_path / "repository" / "package"
    found.mkdir(parents=True)
    (found / "__init__.py").write_text("")
    (found.parent / "README.md").write_text("")
    (found.parent / ".gitignore").write_text("__pycache__/\nvenv/\n")
    git(found.parent, "init", "--quiet")
    git(found.parent, "add", ".")
    git(found.parent, "commit", "--quiet", "-m", "all")
    return found


def test_a_clean_package_has_a_commit(package: Path) -> None:
    (package.parent / "README.md").write_text("changed, but not in the package")
    (package.parent / "notes.txt").write_text("")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("")
    assert revision(package) == (git(package, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("changed", ["__init__.py", "new.py"])
def test_a_changed_package_is_dirty(package: Path, changed: str) -> None:
    (package / changed).write_text("x = 1\n")
    assert revision(package) == (git(package, "rev-parse", "HEAD"), True)


def test_what_git_does_not_track_has_no_commit(package: Path, tmp_path: Path) -> None:
    """Neither outside a repository, nor installed inside somebody's."""
    installed = package.parent / "venv" / "equifl"
    for folder in (installed, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        assert revision(folder) == (None, None)


def test_without_git_nothing_fails(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(package) == (None, None)
    assert made_with("cpu", "torch")["commit"] is None


def test_a_run_says_whether_its_code_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equifl.sim.players.revision", lambda package: ("abc", True))
    assert play(tmp_path / "run")
    results = load_results(tmp_path / "run")
    assert (results.made_with["commit"], results.made_with["dirty"]) == ("abc", True)
    assert "<dt>dirty</dt><dd>True</dd>" in make_page(results)


def test_in_memory_it_is_the_same_and_leaves_nothing(
    tmp_path: Path, uninterrupted: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = simulate(CONFIG, device="cpu")
    assert results.finished
    assert results.folder is None
    stored = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in uninterrupted.splitlines()]
    assert stored == json.loads(json.dumps(results.records))
    assert list(tmp_path.iterdir()) == []
    assert results.report("page.html") == Path("page.html")
    with pytest.raises(ValueError, match=r"output: missing; these results have no folder"):
        results.report()


def test_an_unknown_engine_is_refused_before_any_data_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="engine: 'compile' is not known; did you mean 'compiled'"):
        simulate(engine="compile", data={"name": "arrays", "path": str(tmp_path / "missing.npz")})


def test_callbacks_are_called_at_start_rounds_and_end(tmp_path: Path) -> None:
    noted: list[Any] = []

    class Noted(Callback):
        def on_start(self, config: Config, player: Any) -> None:
            noted.append((config.rounds, player.device))

        def on_round(self, played: int, records: Records) -> None:
            noted.append((played, len(records)))

        def on_end(self, results: Results) -> None:
            noted.append(results.finished)

    simulate(CONFIG, out=tmp_path / "run", device="cpu", callbacks=[Stop(2)])
    simulate(CONFIG, out=tmp_path / "run", device="cpu", callbacks=[Noted()])
    assert noted == [(3, "cpu"), (2, 12), (3, 6), True]  # what was played before, then what is new
    noted.clear()
    simulate(CONFIG, out=tmp_path / "run", device="cpu", callbacks=[Noted()])
    simulate(CONFIG, out=tmp_path / "run", device="cpu", selectors=["rota"], callbacks=[Noted()])
    assert noted == [True, True]  # of a finished folder, and of a part of it


def test_results_of_a_folder_are_those_of_the_run(tmp_path: Path) -> None:
    results = simulate(CONFIG, out=tmp_path / "run", device="cpu")
    again = load_results(tmp_path / "run")
    assert again.records == json.loads(json.dumps(results.records))
    assert again.table().to_dict() == results.table().to_dict()
    assert repr(results).splitlines()[0] == "Results(synthetic, 3 of 3 rounds)"
    assert "Rota" in repr(results)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", pytest.param("compiled", marks=pytest.mark.compiled)])
@pytest.mark.parametrize(
    ("model", "train", "more"),
    [
        ("lenet", {}, {}),
        ("mlp", {"epochs": 1, "momentum": 0.9}, {"server": {"aggregate": "loss"}}),
        ("mlp", {}, {"signal": "gradient"}),
        ("logistic", {"epochs": 2}, {"sketch": 32, "availability": {"online": 0.6, "dropout": 0.2}}),
    ],
)
def test_a_run_is_the_same_alone_and_in_company(
    engine: str, model: str, train: dict[str, Any], more: dict[str, Any]
) -> None:
    def played(seeds: list[int], names: list[str]) -> dict[tuple[int, str, int], dict[str, Any]]:
        partition = {"kind": "dirichlet", "alpha": 0.3, "least": 5}  # cohorts and clients of unequal sizes
        results = simulate(
            engine=engine,
            data={"name": "digits", "partition": partition},
            train={"model": model, "lr": 0.05, **train},
            selectors={name: {} for name in names},
            seeds=seeds,
            **{"clients": 11, "per_round": 3, "rounds": 4, "evaluate_every": 2, **more},
        )
        return {(record["round"], record["selector"], record["seed"]): record for record in results.records}

    company = played([0, 1, 2], ["uniform", "power_of_choice", "divfl", "unionfl", "rota"])
    for name in ("rota", "unionfl"):
        for key, record in played([1], [name]).items():
            assert record == company[key]


SIX_LINES = """
from equifl import Rota, SubTrunc, Uniform, simulate

results = simulate(
    selectors={"uniform": Uniform(), "rota": Rota(), "subtrunc": SubTrunc(lam=0.5)},
    data="digits",
    model="lenet",
    clients=30, per_round=5, rounds=60, seeds=5, out="runs/first",
)
shown = repr(results)
frame = results.to_pandas()
latex = results.table(baseline="uniform").to_latex()
page = results.report("first.html")
"""


@pytest.mark.slow
def test_research_takes_six_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(SIX_LINES, found)
    assert len(found["frame"]) == 60 * 3 * 5
    assert "SubTrunc" in found["shown"]
    assert "\\toprule" in found["latex"]
    assert (tmp_path / "first.html").exists()
    assert load_results("runs/first").finished
    assert found["results"].final().groupby("selector")["accuracy"].mean().min() > 50  # it learns


def test_with_a_clock_it_is_known_how_many_seconds_a_target_takes() -> None:
    settings: dict[str, Any] = {"rounds": 4, "seeds": 2, "evaluate_every": 2, "selectors": {"uniform": {}}}
    settings |= {"train": {"model": "logistic", "steps": 3}}
    with_clock = simulate(**settings, speed={"step_seconds": 0.5, "reply_seconds": 1.0}).to_target(accuracy=0)
    assert with_clock["seconds"].tolist() == [2 * (3 * 0.5 + 1.0)]  # at the first evaluation, after two rounds
    assert "seconds" not in simulate(**settings).to_target(accuracy=0)
