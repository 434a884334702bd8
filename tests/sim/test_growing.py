"""A folder that grew has the bytes of one that was played at once, whatever the order, and whoever was killed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from equifl import Rota, SubTrunc, load_results, simulate
from equifl.cli.main import main
from equifl.experiment.checkpoint import read_checkpoint
from equifl.experiment.results import Results
from equifl.experiment.run_folder import CHECKPOINT
from equifl.sim import growing, playing
from equifl.sim.loop.federation import Federation
from tests.sim.test_simulation import Stop, never

ROOT = Path(__file__).parents[2]
SELECTORS: dict[str, Any] = {"uniform": {}, "rota": {}, "subtrunc": {"lam": 0.5}}
OPTIONS: dict[str, Any] = {
    "model": "mlp",
    "train": {"epochs": 1, "model_options": {"hidden": 5}},
    "clients": 8,
    "per_round": 2,
    "evaluate_every": 3,
    "partition": {"kind": "dirichlet", "alpha": 0.5, "least": 5},
    "device": "cpu",
}
Extent = tuple[list[str], list[int], int]  # selectors, seeds and rounds
WHOLE: Extent = (["uniform", "rota", "subtrunc"], [3, 0, 1], 7)


def run(out: Path | None, extent: Extent, engine: str = "torch", **more: Any) -> Results:
    names, seeds, rounds = extent
    chosen = {name: SELECTORS[name] for name in names}
    settings = {"selectors": chosen, "seeds": seeds, "rounds": rounds, "engine": engine, **OPTIONS, **more}
    return simulate(out=out, **settings)


def bytes_of(folder: Path) -> bytes:
    return (folder / "rounds.jsonl").read_bytes()


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the whole experiment, played at once, by engine."""
    return {engine: tmp_path_factory.mktemp("at_once") / engine for engine in ("torch", "compiled")}


def expected(at_once: dict[str, Path], engine: str = "torch") -> Path:
    if not at_once[engine].exists():
        run(at_once[engine], WHOLE, engine)
    return at_once[engine]


STEPS: dict[str, list[Extent]] = {
    "seeds": [(WHOLE[0], [0], 7)],
    "selectors": [(["rota"], WHOLE[1], 7)],
    "rounds": [(WHOLE[0], WHOLE[1], 5)],
    "all at a time": [(["rota", "uniform"], [0, 3], 4)],
    "one after the other": [(["subtrunc"], [1], 2), (["subtrunc"], [1, 3], 2), (["uniform", "subtrunc"], [1, 3], 3)],
    "the other way round": [(["uniform"], [1], 1), (["uniform"], [1], 6), (["uniform"], [3, 0, 1], 6)],
}


CASES: list[Any] = [("torch", steps) for steps in STEPS]
CASES += [pytest.param("compiled", steps, marks=pytest.mark.compiled) for steps in ("rounds", "one after the other")]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "steps"), CASES)
def test_it_is_as_if_played_at_once(engine: str, steps: str, tmp_path: Path, at_once: dict[str, Path]) -> None:
    folder = tmp_path / "run"
    for extent in STEPS[steps]:
        run(folder, extent, engine)
    results = run(folder, WHOLE, engine)
    whole = expected(at_once, engine)
    assert bytes_of(folder) == bytes_of(whole)
    assert results.finished
    assert results.records == load_results(whole).records
    assert load_results(folder).config == load_results(whole).config
    mine, other = (read_checkpoint(one / CHECKPOINT) for one in (folder, whole))
    assert mine is not None
    assert other is not None
    for name in other.keys() - {"config.crc"}:
        np.testing.assert_array_equal(mine[name], other[name])
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
    again = run(folder, (WHOLE[0], WHOLE[1], 9), engine)
    assert again.records == run(None, (WHOLE[0], WHOLE[1], 9), engine).records
    part = run(folder, (WHOLE[0], WHOLE[1][:1], 9), engine)
    assert part.records == [record for record in again.records if record["seed"] == WHOLE[1][0]]
    assert part.folder is None  # a report of the part does not replace that of the folder


def test_only_what_is_missing_is_played_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, (["rota"], [0, 3], 5))
    played: list[tuple[int, str, int]] = []
    play = Federation.play

    def noted(self: Federation) -> Any:
        records = play(self)
        played.extend((record["round"], record["selector"], record["seed"]) for record in records)
        return records

    monkeypatch.setattr(Federation, "play", noted)
    with caplog.at_level("INFO", "equifl"):
        run(tmp_path, (["uniform", "rota"], [3, 0, 1], 7))
    line = "2 of 6 runs are there, with 5 of 7 rounds; added: seed 1, selector uniform, rounds up to 7"
    assert f"{tmp_path}: {line}" in [record.getMessage() for record in caplog.records]
    old = [(t, "rota", seed) for t in (5, 6) for seed in (0, 3)]
    new = [(t, name, seed) for t in range(7) for name, seed in (("rota", 1), *(("uniform", s) for s in (3, 0, 1)))]
    assert sorted(played) == sorted(old + new)


@pytest.mark.slow
def test_a_large_checkpoint_is_not_kept_and_all_rounds_are_played_again(
    tmp_path: Path, at_once: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (playing, growing):
        monkeypatch.setattr(module, "KEPT_BYTES", 1000)
    run(tmp_path / "run", (WHOLE[0], WHOLE[1], 5))
    assert not (tmp_path / "run" / CHECKPOINT).exists()
    with caplog.at_level("INFO", "equifl"):
        run(tmp_path / "run", WHOLE)
    assert "run: kept no checkpoint, so all rounds are played again and compared" in caplog.text
    assert bytes_of(tmp_path / "run") == bytes_of(expected(at_once))
    assert not (tmp_path / "run" / CHECKPOINT).exists()


def test_other_scores_than_accuracy_grow_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    given: dict[str, Any] = {"data": (x, x @ [1.0, 2.0, 3.0], np.arange(80) % 8), "task": "regression"}
    options = {key: value for key, value in OPTIONS.items() if key not in ("partition", "clients", "model", "train")}

    def regress(out: str, seeds: int, rounds: int) -> None:
        settings = {"model": "logistic", "selectors": ["rota"], "seeds": seeds, "rounds": rounds, **options, **given}
        simulate(out=tmp_path / out, **settings)

    regress("run", 1, 2)
    regress("run", 2, 4)
    regress("whole", 2, 4)
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["whole", "file"])
@pytest.mark.parametrize("stopped", [3, 5])
def test_the_memory_of_the_server_rule_grows_too(keep: str, stopped: int, tmp_path: Path) -> None:
    """In a file it is no part of the checkpoint, and so all rounds are played again."""
    rule: dict[str, Any] = {"server": {"aggregate": {"class": "memory", "keep": keep}}}
    run(tmp_path / "run", (["rota"], [0], 5), callbacks=[Stop(stopped)], **rule)
    assert (tmp_path / "run" / CHECKPOINT).exists() == (keep == "whole" or stopped == 3)
    run(tmp_path / "run", (["uniform", "rota"], [0, 1], 7), **rule)
    run(tmp_path / "whole", (["uniform", "rota"], [0, 1], 7), **rule)
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 3])
def test_an_unfinished_run_grows(stopped: int, tmp_path: Path, at_once: dict[str, Path]) -> None:
    run(tmp_path / "run", (["rota"], [0], 5), callbacks=[Stop(max(stopped, 1))])
    if not stopped:
        (tmp_path / "run" / CHECKPOINT).unlink()
    assert run(tmp_path / "run", WHOLE).finished
    assert bytes_of(tmp_path / "run") == bytes_of(expected(at_once))


class StopAfter(Stop):
    """Stops after so many rounds of all parts."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def on_round(self, played: int, records: Any) -> bool:
        self.left -= 1
        return self.left > 0


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 16])
def test_stopped_while_it_grows_it_stays_what_it_was_and_returns_what_was_played(
    rounds: int, tmp_path: Path, at_once: dict[str, Path]
) -> None:
    folder = tmp_path / "run"
    run(folder, (["rota"], [0, 3], 5))
    before = bytes_of(folder)
    found = run(folder, WHOLE, callbacks=[StopAfter(rounds)])
    assert not found.finished
    assert {(record["selector"], record["seed"]) for record in found.records} >= {("rota", 0), ("rota", 3)}
    assert "Rota" in repr(found)
    assert found.rounds_played < found.config["rounds"]
    assert bytes_of(folder) == before
    assert load_results(folder).finished
    assert run(folder, (["rota"], [0, 3], 5)).finished  # as before
    assert run(folder, WHOLE).finished
    assert bytes_of(folder) == bytes_of(expected(at_once))


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(5, 7), (5, 6), (4, 9)])
def test_the_last_rounds_that_were_evaluated_one_by_one_are_no_longer_the_last(
    first: int, then: int, tmp_path: Path
) -> None:
    one = ["uniform"], [0]
    run(tmp_path / "grown", (*one, first), evaluate_last=3)
    run(tmp_path / "grown", (*one, then), evaluate_last=3)
    run(tmp_path / "whole", (*one, then), evaluate_last=3)
    assert bytes_of(tmp_path / "grown") == bytes_of(tmp_path / "whole")


def test_another_growth_than_that_which_was_stopped(tmp_path: Path, at_once: dict[str, Path]) -> None:
    run(tmp_path / "run", (["rota"], [0], 5))
    run(tmp_path / "run", (["rota"], [0, 1, 3], 6), callbacks=[StopAfter(2)])
    assert run(tmp_path / "run", WHOLE).finished
    assert bytes_of(tmp_path / "run") == bytes_of(expected(at_once))
    assert not (tmp_path / "run" / "growing").exists()


@pytest.mark.slow
def test_fewer_selectors_seeds_or_rounds_are_returned_from_what_is_there(
    at_once: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = expected(at_once)
    extents: list[Extent] = [(["rota"], [1, 3], 7), (["subtrunc", "rota"], [0], 6), ([*WHOLE[0][::-1]], WHOLE[1], 7)]
    wanted = [json.loads(json.dumps(run(None, extent).records)) for extent in extents]
    before = bytes_of(folder)
    monkeypatch.setattr(Federation, "play", never)
    for extent, records in zip(extents, wanted, strict=True):
        found = run(folder, extent)
        assert found.records == records
        assert (found.finished, list(found.config["selectors"])) == (True, extent[0])
    with pytest.raises(ValueError, match=r"rounds: 5 is not allowed; allowed: rounds that .* has evaluated, every 3"):
        run(folder, (["rota"], [0], 5))
    assert bytes_of(folder) == before


@pytest.mark.parametrize(
    ("extent", "more", "message"),
    [
        ((["uniform"], [0, 1], 5), {}, r"lacks seed 1 and selector uniform, and has seed 3 and selector rota that"),
        (
            (["rota"], [0, 3], 6),
            {"train": OPTIONS["train"] | {"lr": 0.5}},
            r"configuration \(train.lr: 0.05 there, 0.5",
        ),
        ((["rota"], [0, 3, 4], 5), {"clients": 9}, r"holds a run with another configuration \(clients: 8 there, 9"),
    ],
)
def test_what_cannot_be_joined_is_refused(extent: Extent, more: dict[str, Any], message: str, tmp_path: Path) -> None:
    run(tmp_path, (["rota"], [0, 3], 5))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=message):
        run(tmp_path, extent, **more)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_rounds_that_depend_on_their_number_cannot_be_added(tmp_path: Path) -> None:
    falling: dict[str, Any] = {"train": {"epochs": 1, "lr_schedule": "cosine", "model_options": {"hidden": 5}}}
    run(tmp_path, (["rota"], [0], 3), **falling)
    with pytest.raises(ValueError, match=r"holds 3 rounds, 6 are asked for; with train.lr_schedule = 'cosine'"):
        run(tmp_path, (["rota"], [0], 6), **falling)
    assert run(tmp_path, (["rota", "uniform"], [0, 1], 3), **falling).finished


def test_a_larger_experiment_that_is_not_finished_is_not_taken_for_a_smaller_one(tmp_path: Path) -> None:
    run(tmp_path, (["rota", "uniform"], [0], 6), callbacks=[Stop(4)])
    assert run(tmp_path, (["rota"], [0], 3)).finished
    with pytest.raises(ValueError, match=r"holds a larger experiment, which is not finished; finish that first"):
        run(tmp_path, (["rota"], [0], 6))


def test_objects_and_tables_of_the_same_selector_are_the_same(tmp_path: Path) -> None:
    run(tmp_path, (["rota", "subtrunc"], [0], 3))
    chosen = {"rota": Rota(), "subtrunc": SubTrunc(lam=0.5), "uniform": {}}
    grown = run(tmp_path, (["rota"], [0], 3), selectors=chosen)
    assert list(grown.config["selectors"]) == ["rota", "subtrunc", "uniform"]
    with pytest.raises(ValueError, match=r"selectors.subtrunc.lam: 0.5 there, 0.9 here"):
        run(tmp_path, (["rota"], [0], 3), selectors={"subtrunc": SubTrunc(lam=0.9)})


@pytest.mark.slow
def test_by_the_command_line_and_with_sweeps(tmp_path: Path) -> None:
    tiny = ["rounds=3", "clients=10", "per_round=2", "train.model=logistic", "train.steps=1", "engine=torch"]
    words = [word for override in tiny for word in ("--set", override)]
    words += ["--set", "selectors={power_of_choice={}, uniform={}}", "--quiet"]

    def runs(folder: str, seeds: str, *more: str) -> str:
        arguments = ["run", *words, "--set", f"seeds={seeds}", "--out", str(tmp_path / folder), *more]
        result = CliRunner().invoke(main, [word for word in arguments if word != "--quiet" or "loud" not in folder])
        assert result.exit_code == 0, result.stderr
        return result.output

    runs("loud", "[0]")
    assert "loud: 2 of 4 runs are there; added: seed 1" in runs("loud", "[0,1]")
    report = (tmp_path / "loud" / "report.html").read_bytes()
    assert "one seed after 3 rounds" in " ".join(runs("loud", "[1]", "--out", str(tmp_path / "loud")).split())
    assert (tmp_path / "loud" / "report.html").read_bytes() == report  # that of the whole
    runs("whole", "[0,1]")
    assert bytes_of(tmp_path / "loud") == bytes_of(tmp_path / "whole")
    sweep = ["--sweep", "train.lr=0.1,0.2", "--sweep", "selectors.power_of_choice.candidates=3"]
    runs("sweep", "[0]", *sweep)
    runs("sweep", "[0,1]", *sweep[:-1], "selectors.power_of_choice.candidates=3,4")
    runs("other", "[0,1]", *sweep[:-1], "selectors.power_of_choice.candidates=3,4")
    for point in ("train.lr=0.1", "train.lr=0.2"):
        assert bytes_of(tmp_path / "sweep" / point) == bytes_of(tmp_path / "other" / point)


# Grows a folder in processes that kill themselves before the n-th time they change something on the disk. This process
# computes nothing, so that it can fork; it reads the folder after each kill, and lets another one finish the growth.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import equifl
from equifl.sim.data import load_dataset
from tests.sim.test_growing import WHOLE, bytes_of, run

load_dataset("digits")  # so that children need not import what it takes

base, folder, whole, every = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree")

def changes(event, arguments):
    if event == "open":
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        return isinstance(arguments[0], (str, os.PathLike)) and bool(arguments[2] & writes)
    return event in CHANGES

def grow(kill_at):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = kill_at
    def hook(event, arguments):
        nonlocal left
        if changes(event, arguments) and str(folder) in str(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    try:
        code = 0 if run(folder, WHOLE).finished else 1
    except BaseException as error:
        print(repr(error), flush=True)
        code = 2
    os._exit(code)

moment, kills = 1, 0
while True:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)
    code = grow(moment)
    if code == 0:
        break
    assert code == -signal.SIGKILL, code
    kills += 1
    found = equifl.load_results(folder)  # the old one or the new one
    assert found.finished and not found.left_out, moment
    assert len(found.records) in (2 * 5, 9 * 7), (moment, len(found.records))
    assert grow(10**9) == 0, moment
    assert bytes_of(folder) == bytes_of(whole), moment
    left = {path.name for path in folder.iterdir()} - {"checkpoint.npz"}  # none where it was killed before that
    assert left == {".lock", "config.json", "rounds.jsonl"}, moment
    moment += every
print(kills)
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(tmp_path: Path, at_once: dict[str, Path]) -> None:
    run(tmp_path / "base", (["rota"], [0, 3], 5))
    command = [sys.executable, "-c", KILLED, *map(str, (tmp_path / "base", tmp_path / "run", expected(at_once), 17))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 6


def test_what_is_half_in_its_place_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run", (["rota"], [0], 3))
    monkeypatch.setattr("equifl.experiment.swap.settle", never)
    with pytest.raises(AssertionError):
        run(tmp_path / "run", (["rota"], [0, 1], 3))
    assert load_results(tmp_path / "run").config["seeds"] == [0, 1]
    shutil.copy(tmp_path / "run" / "growing" / "ready" / "config.json", tmp_path / "run")  # one of three files
    assert len(load_results(tmp_path / "run").records) == 6
