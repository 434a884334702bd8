import subprocess
from pathlib import Path
from typing import Any

import pytest

from equifl.config import Config
from equifl.records import RunFolder
from equifl.report.page import make_page
from equifl.sim.federation import Federation
from equifl.sim.run import choose_device, load_data, made_with, revision, run

TINY = ["rounds=2", "clients=10", "per_round=2", "seeds=[0]", "train.model=logistic", "train.steps=1"]


def play(folder: Path) -> bool:
    config = Config.load(None, TINY)
    federation = Federation(config, load_data(config, None), device="cpu")
    with RunFolder.open(folder, config.as_dict(), made_with("cpu", federation.engine.name)) as opened:
        return run(federation, opened, on_round=lambda played, rows: True)


@pytest.mark.parametrize("kept", [0, 5])
def test_records_that_went_missing_are_noticed(kept: int, tmp_path: Path) -> None:
    assert play(tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    lines = rounds.read_text().splitlines(keepends=True)
    assert len(lines) == 12  # six selectors, two rounds
    rounds.write_text("".join(lines[:kept]))
    with pytest.raises(ValueError, match=rf"rounds.jsonl: {kept} records where the checkpoint has 12; put the whole"):
        play(tmp_path / "run")


def test_a_finished_run_has_nothing_left_to_play(tmp_path: Path) -> None:
    assert play(tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    assert play(tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


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
    assert made_with("cpu", "general")["commit"] is None


def test_a_run_says_whether_its_code_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equifl.sim.run.revision", lambda package: ("abc", True))
    assert play(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert (folder.made_with["commit"], folder.made_with["dirty"]) == ("abc", True)
    assert "<dt>dirty</dt><dd>True</dd>" in make_page(folder.config, folder.made_with, folder.rows())
