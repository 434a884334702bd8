import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from equifl import SubTrunc, __version__
from equifl.cli.main import main
from equifl.experiment.config import Config
from equifl.experiment.names import display_name
from equifl.experiment.results import load_results
from equifl.experiment.run_folder import RunFolder
from equifl.selectors import SELECTORS
from equifl.sim.data.catalogue import NAMES

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, "-P"]  # as the installed command: the current folder is not on the path by itself
EQUIFL = [*PYTHON, "-m", "equifl"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
PATIENCE = 120.0  # seconds until a process is taken for stuck

Finished = subprocess.CompletedProcess[str]


def settings(*overrides: str) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


TINY = ["rounds=4", "clients=10", "per_round=2", "seeds=[0,1]", "evaluate_every=2", "train.steps=2"]
TINY += ["train.model=logistic"]
QUICK_DATA = ["data.name=synthetic", "data.partition=natural"]  # digits take a second to import


def call(*command: str | Path, cwd: Path | None = None) -> Finished:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, timeout=PATIENCE, check=False
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# A run from its beginning to its end


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """The folder of a tiny run of all six selectors, and what it said."""
    folder = tmp_path_factory.mktemp("tiny") / "run"
    return folder, call(*EQUIFL, "run", *settings(*TINY), "--out", folder)


def test_a_run_writes_its_folder(finished: tuple[Path, Finished]) -> None:
    folder, run = finished
    assert run.returncode == 0, run.stderr
    assert set(files(folder)) == {".lock", "config.json", "rounds.jsonl", "report.html", "checkpoint.npz"}
    record = RunFolder(folder)
    assert record.config == Config.load(overrides=TINY).as_dict()
    assert record.made_with["versions"]["equifl"] == __version__
    expected = [(round, name, seed) for round in range(4) for name in Config().selectors for seed in (0, 1)]
    assert [(row["round"], row["selector"], row["seed"]) for row in record.rows()] == expected
    assert all(("accuracy" in row) == (row["round"] in (1, 3)) for row in record.rows())
    assert all(len(set(row["cohort"])) == 2 for row in record.rows())


def test_a_run_shows_its_table_on_standard_output_and_its_progress_on_standard_error(
    finished: tuple[Path, Finished],
) -> None:
    folder, run = finished
    lines = run.stdout.splitlines()
    assert lines[0].split()[0] == "selector"
    names = [display_name(name) for name in Config().selectors]
    assert [line.split()[0] for line in lines if line.split()[0] in names] == names
    assert lines[-2:] == [f"record: {folder}", f"report: {folder / 'report.html'}"]
    progress = run.stderr.splitlines()
    assert progress[0].startswith("digits: 6 selectors x 2 seeds on ")
    assert progress[-1].startswith("round 4/4; Random ")


@pytest.mark.slow
def test_a_finished_run_is_not_played_again_and_its_table_comes_as_json(finished: tuple[Path, Finished]) -> None:
    folder, _ = finished
    before, written = files(folder), (folder / "rounds.jsonl").stat().st_mtime_ns
    again = call(*EQUIFL, "run", *settings(*TINY), "--out", folder, "--json")
    assert (again.returncode, again.stderr) == (0, "")
    table = load_results(folder).table()
    assert json.loads(again.stdout) == {"folder": str(folder), **table.to_dict()}
    assert files(folder) == before
    assert (folder / "rounds.jsonl").stat().st_mtime_ns == written
    shown = call(*EQUIFL, "run", *settings(*TINY), "--out", folder, "--device", "cpu")
    assert (shown.returncode, shown.stderr) == (
        0,
        f"{folder}: finished already; to run it again, choose another folder\n",
    )
    assert shown.stdout.endswith(f"record: {folder}\nreport: {folder / 'report.html'}\n")
    assert files(folder) == before


@pytest.mark.slow
def test_a_folder_with_another_configuration_is_refused_and_left_alone(finished: tuple[Path, Finished]) -> None:
    folder, _ = finished
    before = files(folder)
    other = call(*EQUIFL, "run", *settings(*TINY, "rounds=5", "train.lr=0.2"), "--out", folder)
    assert (other.returncode, other.stdout) == (2, "")
    shown = "train.lr: 0.05 there, 0.2 here"
    assert (
        other.stderr == f"equifl: {folder}: holds a run with another configuration ({shown}); choose another folder\n"
    )
    assert files(folder) == before


OWN = """
import numpy as np

class Last:
    needs = ()

    def select(self, signals, k, *, rng):
        return np.flatnonzero(signals.available)[-k:]
"""


@pytest.mark.slow
def test_a_selector_of_ones_own_in_the_current_folder_quietly(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "my experiment.toml").write_text("[selectors]\nmine = { class = 'own:Last' }")
    command = [*EQUIFL, "run", "my experiment.toml", *settings(*TINY, *QUICK_DATA, "seeds=[7]"), "--quiet"]
    run = call(*command, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("my experiment-")
    found = [(row["selector"], row["seed"], row["cohort"]) for row in RunFolder(folder).rows()]
    assert found == [("mine", 7, [8, 9])] * 4


# The report


@pytest.mark.slow
def test_a_run_by_the_general_engine_says_why_once(tmp_path: Path) -> None:
    tiny = settings(*TINY, "train.model=tests.sim.example_modules:Residual", "selectors={uniform={}}")
    run = call(*EQUIFL, "run", *tiny, "--out", tmp_path / "run")
    assert run.returncode == 0, run.stderr
    assert (
        run.stderr.count("by the torch engine, not by compiled: the model is no plain sequence of convolutions") == 1
    )
    assert RunFolder(tmp_path / "run").made_with["engine"] == "torch"
    assert "engine" not in call(*EQUIFL, "run", *tiny, "--out", tmp_path / "run", "--quiet").stderr


def test_a_report_is_written_where_it_is_asked_for_and_is_the_one_of_the_run(
    finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    folder, _ = finished
    assert said("report", str(folder), "-o", str(tmp_path / "mine.html")) == f"{tmp_path / 'mine.html'}\n"
    assert (tmp_path / "mine.html").read_bytes() == (folder / "report.html").read_bytes()


def test_a_folder_that_is_no_run_has_no_report(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert (result.exit_code, result.output) == (2, f"equifl: {tmp_path}: is no run folder (it has no config.json)\n")


@pytest.mark.slow
def test_without_its_libraries_there_is_no_report_but_a_run(tmp_path: Path) -> None:
    # None in sys.modules is a library that cannot be imported.
    code = "import sys; sys.modules['plotly'] = sys.modules['jinja2'] = None; from equifl.cli.main import main; main()"
    options = settings(*TINY, *QUICK_DATA, "seeds=[0]", "selectors={rota={}}")
    run = call(*PYTHON, "-c", code, "run", *options, "--out", tmp_path / "run", "--json")
    missing = "equifl.report needs jinja2, which is not installed; pip install 'equifl[report]'"
    assert (run.returncode, run.stderr) == (0, f"no report: {missing}\n")
    assert json.loads(run.stdout)["folder"] == str(tmp_path / "run")
    alone = call(*PYTHON, "-c", code, "report", tmp_path / "run")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr == f"equifl: {missing}\n"


@pytest.mark.parametrize("name", ["x.pdf", "x", "x.html.gz"])
def test_a_report_is_a_web_page_and_says_how_to_print_it(
    name: str, finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    output = tmp_path / name
    result = CliRunner().invoke(main, ["report", str(finished[0]), "-o", str(output)])
    allowed = "a name that ends in .html or .htm; for a PDF, open the page in a browser and print it to a file"
    assert result.exit_code == 2
    assert result.output == f"equifl: output: {str(output)!r} is not allowed; allowed: {allowed}\n"
    assert not output.exists()


def test_help_does_not_wait_for_the_libraries_of_the_report() -> None:
    code = (
        "import sys; from equifl.cli.main import main\n"
        "try: main()\nfinally: print({'plotly', 'jinja2'} & {*sys.modules})"
    )
    assert call(*PYTHON, "-c", code, "--help").stdout.endswith("set()\n")


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (settings("selectors.subtrunc.lamb=3"), "selectors.subtrunc.lamb: unknown key; did you mean `lam`?"),
        (settings("rounds"), "--set: 'rounds' is not allowed; allowed: key=value, for instance train.lr=0.1"),
        (["missing.toml"], "missing.toml: cannot be read (No such file or directory)"),
        (["broken.toml"], "broken.toml: is not TOML (Invalid value (at line 1, column 10))"),
    ],
)
def test_a_mistake_is_one_line_and_does_not_wait_for_torch(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.toml").write_text("rounds = \nclients = 3")
    code = "import sys; import equifl.cli.main as cli\ntry: cli.main()\nfinally: print('torch' in sys.modules)"
    run = call(*PYTHON, "-c", code, "run", *arguments, "--out", "run", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (2, f"equifl: {message}\n")
    assert run.stdout == "False\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_option_that_could_mean_two_things_is_one_line(tmp_path: Path) -> None:
    options = settings("data={name='synthetic',partition='dirichlet',alpha=0.1}")
    run = call(*EQUIFL, "run", *options, "--out", "run", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("equifl: data.alpha: 0.1 could be meant for the data set 'synthetic' or for the part")
    assert not (tmp_path / "run").exists()


# One's own data


def save_tokens(path: Path) -> None:
    """Four tokens of twelve, of which the last decides the class; clients with names, one of them never tested."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 12, (1200, 4))
    labels = np.array(["low", "mid", "top"])[x[:, -1] // 4]
    who = np.array([f"site {i:02}" for i in np.arange(1200) % 13])
    test = (np.arange(1200) % 7 == 0) & (who != "site 12")
    parts = {"train": ~test, "test": test}
    arrays = {"x": x, "y": labels, "owners": who}
    np.savez(
        path, **{f"{name}_{split}": array[part] for split, part in parts.items() for name, array in arrays.items()}
    )


@pytest.mark.slow
def test_text_of_ones_own_is_learnt_by_clients_of_ones_own(tmp_path: Path) -> None:
    save_tokens(tmp_path / "mine.npz")
    data = ["data.name=arrays", "data.path=mine.npz", "data.partition=natural"]
    model = ["train.model=tests.sim.example_modules:Tokens", "train.model_options={classes=3}", "train.lr=0.5"]
    options = [*data, *model, "rounds=15", "seeds=[0,1]", "per_round=4", "selectors={uniform={},rota={}}"]
    command = [*EQUIFL, "run", "--out", "run", *settings(*options)]
    refused = call(*command, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "equifl: data: owners: 1 of 13 clients is in one split only: 'site 12'; allowed: "
    )
    assert not (tmp_path / "run").exists()

    run = call(*command, *settings("data.partition.drop_incomplete=true"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("1 of 13 clients dropped: no training or no test examples") == 1
    assert "by the torch engine, not by compiled: the data are integers, and it takes float32" in run.stderr
    record = RunFolder(tmp_path / "run")
    assert record.config["clients"] == 12
    last = [row for row in record.rows() if row["round"] == 14]
    assert len(last) == 4
    assert all(row["accuracy"] > 80 and len(row["client_accuracy"]) == 12 for row in last)  # chance is 33

    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    again = call(*command, *settings("data.partition.drop_incomplete=true", "clients=12"), "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")  # said or not, it is the same run
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before
    silent = call(*command, *settings("data.partition.drop_incomplete=true"), "--quiet", cwd=tmp_path)
    assert (silent.returncode, silent.stderr) == (0, "")
    other = call(
        *command, *settings("data.partition.drop_incomplete=true", "clients=11"), "--out", "other", cwd=tmp_path
    )
    assert other.returncode == 2
    assert "clients: 11 is not allowed; allowed: 12, the natural clients of mine; or leave clients out" in other.stderr


def check(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["data", "check", str(path)])
    return result.exit_code, result.output


def save(path: Path, **changes: Any) -> Path:
    """24 + 12 examples of two classes and three clients, with changes; None leaves an array out."""
    arrays: dict[str, Any] = {}
    for split, n in (("train", 24), ("test", 12)):
        numbers = np.arange(n)
        arrays |= {f"x_{split}": np.sqrt(numbers[:, None] + np.arange(5)), f"y_{split}": numbers % 2}
        arrays[f"owners_{split}"] = numbers % 3
    np.savez(path, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return path


def test_what_a_file_holds_is_said_before_anybody_trains(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", x_test=np.full((12, 5), 2, np.float32))
    assert check(path) == (
        0,
        f"""\
training: 24 examples of shape (5,), float64, taken as float32, 0 to 5.196
test: 12 examples of shape (5,), float32, 2 to 2
classes: 2 (train + test examples of 0: 12 + 6, 1: 12 + 6)
clients: 3, of which 0 in one split only
training examples of a client: 8 to 8, median 8
test examples of a client: 4 to 4, median 4
classes of a client: 2 to 2, median 2
3 of 3 clients have fewer than 10 test examples: each scores in steps of more than 10 points
usable: --set data.name=arrays --set data.path={path} --set data.partition=natural
""",
    )


def test_what_a_file_of_tokens_with_names_holds(tmp_path: Path) -> None:
    save_tokens(tmp_path / "mine.npz")
    code, said = check(tmp_path / "mine.npz")
    assert code == 1
    lines = said.splitlines()
    assert lines[0] == "training: 1,041 examples of shape (4,), int64, 0 to 11, which stay integers"
    assert lines[2].startswith("classes: 3 (train + test examples of low: ")
    assert lines[3] == "clients: 13, of which 1 in one split only"
    assert lines[-2].startswith(
        "problem: owners: 1 of 13 clients is in one split only: 'site 12'; allowed: everyone in"
    )
    assert "drop_incomplete = true" in lines[-2]
    assert lines[-1] == "not usable as it is"


def test_a_file_of_numbers_is_for_regression(tmp_path: Path) -> None:
    code, said = check(save(tmp_path / "mine.npz", y_train=np.arange(24) / 2))
    assert code == 0
    assert "targets: numbers from 0 to 11.5, mean " in said
    assert said.endswith("--set data.partition=natural --set task=regression\n")


def test_a_file_without_clients_of_its_own_says_so(tmp_path: Path) -> None:
    code, said = check(save(tmp_path / "mine.npz", owners_train=None, owners_test=None))
    assert code == 0
    assert "clients: none of its own (no owners_train, owners_test), for any partition but natural\n" in said


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        (
            {"y_test": None},
            ["mine.npz: y_test missing; allowed: a file with x_train, y_train, x_test, y_test; it has x_"],
        ),
        (
            {"y_train": 1 + np.arange(24) % 2},
            ["y_train: [1, 2] are not allowed; allowed: 0 to C-1, all of them in use; sub"],
        ),
        (
            {"owners_test": 7 + np.arange(12) % 3},
            ["owners: 6 of 6 clients are in one split only: 0, 1, 2, ...; allowed:"],
        ),
        ({"owners_test": None}, ["owners_train, owners_test: only one is there; allowed: both or none"]),
        (
            {"x_train": np.array([[1.0], [2.0, 3.0]], object)},
            ["x_train: is an array of Python objects; allowed: numbers"],
        ),
        (
            {"y_train": np.full(24, np.nan)},
            ["y_train: 24 of 24 are not finite, first y_train[0]; allowed: finite numbers"],
        ),
        (
            {"x_train": np.full((24, 5), np.nan)},
            ["x_train: not all finite: 24 of 24 examples have nan, or more than flo"],
        ),
        (
            {"y_train": np.arange(23) % 2, "owners_test": np.arange(5)},
            [
                "owners_test: shape (5,) is not allowed; allowed: (12,), one value for each example of x_test",
                "y_train: shape (23,) is not allowed; allowed: (24,), one value for each example of x_train",
            ],
        ),
    ],
    ids=["key", "from 1", "by client", "one owner", "objects", "float labels", "nan", "lengths"],
)
def test_all_that_is_wrong_with_a_file_is_said_with_what_to_do(
    changes: dict[str, Any], problems: list[str], tmp_path: Path
) -> None:
    code, said = check(save(tmp_path / "mine.npz", **changes))
    assert code == 1
    found = [line.removeprefix("problem: ") for line in said.splitlines() if line.startswith("problem: ")]
    assert len(found) == len(problems)
    assert all(line.startswith(problem) for line, problem in zip(found, problems, strict=True))


def test_a_file_that_is_not_there_or_no_archive(tmp_path: Path) -> None:
    assert check(tmp_path / "no.npz") == (2, f"equifl: {tmp_path / 'no.npz'}: there is no such file\n")
    (tmp_path / "text.npz").write_text("x, y")
    code, said = check(tmp_path / "text.npz")
    assert code == 1
    assert f"problem: path: '{tmp_path / 'text.npz'}' is not an .npz file of numbers; np.savez writes one\n" in said


# The other commands


def said(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table_of_folders_whose_names_clash_says_which_baselines_there_are(
    finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    folders = [str(shutil.copytree(finished[0], tmp_path / name)) for name in ("first", "a b")]
    result = CliRunner().invoke(main, ["table", *folders, "--format", "csv"])
    advice = "add --baseline first/uniform or --baseline 'a b/uniform'"
    assert result.stderr == f"note: no selector is called uniform, so nothing is compared; {advice}\n"
    assert result.stdout.startswith("selector,")
    for baseline in ("first/uniform", "a b/uniform"):
        again = CliRunner().invoke(main, ["table", *folders, "--baseline", baseline])
        assert (again.exit_code, again.stderr) == (0, "")
    assert CliRunner().invoke(main, ["table", folders[0]]).stderr == ""


def test_selectors_are_listed_with_what_they_need_and_their_parameters() -> None:
    lines = said("selectors").splitlines()
    found = {lines[i]: lines[i + 1 : i + 4] for i in range(0, len(lines), 4)}
    assert list(found) == list(SELECTORS)
    needs = {name: line for name, (_, line, _) in found.items()}
    assert needs["uniform"] == "  needs: nothing"
    assert needs["power_of_choice"] == "  needs: losses"
    assert needs["divfl"] == needs["unionfl"] == needs["rota"] == "  needs: updates"
    assert needs["subtrunc"] == "  needs: losses, updates"
    parameters = {name: shown for name, (_, _, shown) in found.items()}
    assert parameters["uniform"] == parameters["rota"] == "  parameters: none"
    assert parameters["power_of_choice"] == "  parameters: candidates = None"
    assert parameters["subtrunc"].startswith(f"  parameters: lam = {SubTrunc().lam}, b = None, b_factor = ")
    assert parameters["unionfl"].startswith("  parameters: mu = None, mu_factor = ")
    assert ", window = 5, inner = DivFL(sample=None, " in parameters["unionfl"]
    for name, (about, _, _) in found.items():
        assert about == "  " + (SELECTORS[name].__doc__ or "").splitlines()[0]


def test_data_sets_are_listed_with_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EQUIFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = {line.split()[0]: line for line in said("data", "list", "--data-dir", str(tmp_path)).splitlines()}
    assert {"digits", "mnist", "fashion-mnist", "cifar10", "synthetic", "arrays"} <= lines.keys()
    assert lines["digits"].endswith("; 1,442 + 355 examples; no download")
    assert lines["mnist"].endswith("; 60,000 + 10,000 examples; download of 11.6 MB")
    assert lines["heart-disease"].endswith("; 614 + 306 examples; download of 39.6 KB")


@pytest.mark.parametrize(("name", "use"), [("digits", ""), ("synthetic", ""), ("arrays", " --set data.path=FILE.npz")])
def test_a_data_set_without_a_download_says_how_to_use_it(name: str, use: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["data", "get", name, "--data-dir", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, "")  # standard output is for the folder of a download
    assert result.stderr.startswith(f"{name} needs no download (")
    assert result.stderr.endswith(f"; to use it: equifl run --set data.name={name}{use}\n")


def test_an_unknown_data_set_is_refused() -> None:
    result = CliRunner().invoke(main, ["data", "get", "minst"])
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line == f"equifl: data set: 'minst' is not known; did you mean 'mnist'? allowed: {', '.join(NAMES)}"


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("what", ["all", "fresh"])
def test_the_papers_tables_from_finished_runs_with_one_seed(
    what: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = said("reproduce", what, "--seeds", "1", "--out", str(ROOT / "results" / "paper"))
    assert all(len(line) <= columns for line in shown.splitlines())
    assert "one seed" in shown
    names = ["Random", "Power-of-Choice", "Rota", *(["lambda 0.95", "window 10", "ln(1+x)"] if what == "all" else [])]
    lines = [line.strip() for line in shown.splitlines()]
    for name in names:
        found = [line for line in lines if line == name or line.startswith(f"{name} ")]
        assert len(found) >= 2, name  # of both data sets
    for wrong in ("nan", "1 seeds", "*", "…", "chose the same"):
        assert wrong not in shown


def test_the_version() -> None:
    run = call(*EQUIFL, "--version")
    assert (run.returncode, run.stdout) == (0, f"equifl, version {__version__}\n")


@pytest.mark.parametrize(
    ("command", "mentioned"),
    [
        ("", ["run", "report", "selectors", "data", "--version"]),
        ("run", ["CONFIG", "--out", "--set", "--data-dir", "--device", "[auto|cpu|cuda]", "--quiet", "--json"]),
        ("report", ["DIR", "-o, --output"]),
        ("selectors", []),
        ("data", ["list", "get"]),
        ("data list", ["--data-dir"]),
        ("data get", ["NAME", "--data-dir", "--quiet"]),
    ],
)
def test_help_mentions_every_option(command: str, mentioned: list[str]) -> None:
    short, long = (said(*command.split(), option) for option in ("-h", "--help"))
    assert short == long
    for word in [*mentioned, f"Usage: main {command}".rstrip()]:
        assert word in short


# Whatever stops a run, it goes on to the same bytes


LONG = ["rounds=150", "clients=12", "per_round=3", "seeds=[0,1]", "evaluate_every=7", "train.steps=3", *QUICK_DATA]
LONG += ["train.model=logistic", "server.average_last=3", "availability={online = 0.8, dropout = 0.2}"]
LONG += ["selectors={uniform={}, power_of_choice={}, unionfl={inner={class='subtrunc', sample=5}}, rota={}}"]

# Checkpoints many times a second, so that a process is likely to be hit as it writes one.
OFTEN = "from equifl.sim import players; players.CHECKPOINT_SECONDS = 0.02; from equifl.cli.main import main; main()"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("long") / "run"
    run = call(*EQUIFL, "run", *settings(*LONG), "--out", folder, "--quiet")
    assert run.returncode == 0, run.stderr
    return (folder / "rounds.jsonl").read_bytes()


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it has happened, or the process is over."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


def has_played(folder: Path, round: int) -> bool:
    path = folder / "rounds.jsonl"
    return path.exists() and b'{"round": %d,' % round in path.read_bytes()


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on_to_the_same_bytes(tmp_path: Path, uninterrupted: bytes) -> None:
    folder = tmp_path / "run"
    command: list[Any] = [*PYTHON, "-c", OFTEN, "run", *settings(*LONG), "--out", folder, "--quiet"]
    moments: list[Callable[[], bool]] = [
        lambda: (folder / "config.json").exists(),
        lambda: has_played(folder, 10),
        lambda: has_played(folder, 50),
        lambda: has_played(folder, 90),
    ]
    killed = 0
    for moment in moments:
        with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
            wait_until(moment, process)
            time.sleep(random.uniform(0, 0.1))
            process.kill()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 3
    last = call(*command)
    assert last.returncode == 0, last.stderr
    assert (folder / "rounds.jsonl").read_bytes() == uninterrupted


@pytest.mark.slow
def test_interrupted_it_says_how_to_go_on_and_that_gives_the_same_bytes(tmp_path: Path, uninterrupted: bytes) -> None:
    command = [*EQUIFL, "run", *settings(*LONG), "--quiet"]

    def some_rounds_are_played() -> bool:
        return any(has_played(folder, 3) for folder in tmp_path.glob("runs/*"))

    with subprocess.Popen(command, env=ENVIRONMENT, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_until(some_rounds_are_played, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    stopping, stopped = errors.splitlines()
    assert stopping == "stopping after this round ..."
    (folder,) = (tmp_path / "runs").iterdir()
    rounds = (folder / "rounds.jsonl").read_bytes()
    assert uninterrupted.startswith(rounds)
    assert len(rounds) < len(uninterrupted)
    said, _, again = stopped.partition(": ")
    assert said == "stopped after a checkpoint; to go on"
    program, *arguments = shlex.split(again)
    assert program == "equifl"
    assert arguments == [*command[len(EQUIFL) :], "--out", f"runs/{folder.name}"]
    last = call(*EQUIFL, *arguments, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert (folder / "rounds.jsonl").read_bytes() == uninterrupted


# A disk that is full, or does not let itself be written, and what is said of it


# The system refuses what goes beyond a size, as a full disk does; from round 40 on.
FULL_DISK = """
import resource
from equifl.cli.main import main
from equifl.experiment.run_folder import RunFolder

append = RunFolder.append

def appending(self, rows):
    if rows[0]["round"] == 40:
        size = (self.path / "rounds.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    append(self, rows)

RunFolder.append = appending
main()
"""


@pytest.mark.slow
def test_on_a_full_disk_it_says_what_is_complete_and_goes_on_when_there_is_space(
    tmp_path: Path, uninterrupted: bytes
) -> None:
    pytest.importorskip("resource")
    folder, arguments = tmp_path / "run", ["run", *settings(*LONG), "--out", str(tmp_path / "run"), "--quiet"]
    full = call(*PYTHON, "-c", FULL_DISK, *arguments)
    assert (full.returncode, full.stdout) == (2, "")
    rounds = folder / "rounds.jsonl"
    shown, again = full.stderr.splitlines()
    assert shown == f"equifl: {rounds}: cannot be written (File too large); 40 of 150 rounds are in {rounds}"
    assert shlex.split(again.removeprefix("to go on: ")) == ["equifl", *arguments]
    lines = uninterrupted.splitlines(keepends=True)
    assert rounds.read_bytes() == b"".join(lines[: 40 * 8])  # four selectors, two seeds
    assert call(*EQUIFL, *arguments).returncode == 0
    assert rounds.read_bytes() == uninterrupted


# A folder has the name of a file that is to be removed, and cannot be removed as one.
IN_THE_WAY = """
from equifl.cli.main import main
from equifl.experiment.run_folder import RunFolder

finish = RunFolder.finish

def finishing(self, *, keep=False):
    (self.path / "checkpoint.npz").unlink()
    (self.path / "checkpoint.npz").mkdir()
    finish(self)

RunFolder.finish = finishing
main()
"""


@pytest.mark.slow
def test_where_the_last_step_fails_the_table_is_shown_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ["run", *settings(*TINY, *QUICK_DATA), "--out", str(folder), "--json"]
    run = call(*PYTHON, "-c", IN_THE_WAY, *arguments)
    assert run.returncode == 2
    (shown,) = run.stderr.splitlines()
    assert shown.startswith(f"equifl: {folder / 'checkpoint.npz'}: cannot be removed (")
    assert shown.endswith(f"); 4 of 4 rounds are in {folder / 'rounds.jsonl'}")
    table = load_results(folder).table()
    assert json.loads(run.stdout) == {"folder": str(folder), **table.to_dict()}
    (folder / "checkpoint.npz").rmdir()
    again = call(*EQUIFL, *arguments)
    assert (again.returncode, again.stdout, again.stderr) == (0, run.stdout, "")


@pytest.mark.slow
def test_a_report_that_the_disk_refuses_is_named_after_the_table(
    finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    before = files(folder)
    (folder / "report.html.tmp").symlink_to("/dev/full")
    arguments = ["run", *settings(*TINY), "--out", str(folder)]
    run = call(*EQUIFL, *arguments)
    assert run.returncode == 2
    rounds, again = folder / "rounds.jsonl", f"to write the report: equifl report {folder}"
    shown = f"report.html: cannot be written (No space left on device); all rounds are in {rounds}; {again}"
    assert run.stderr.splitlines()[-1] == f"equifl: {folder / shown}"
    assert run.stdout.splitlines()[0].split()[0] == "selector"
    assert run.stdout.endswith(f"record: {folder}\n")
    assert files(folder) == before  # the old report, whole
    assert call(*EQUIFL, *arguments).returncode == 0
