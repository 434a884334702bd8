"""docs/own-aggregator.md: its files are written, its commands are run, and what it shows is what they say."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # five commands, most of them with PyTorch
ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "own-aggregator.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = {
    text.partition("\n")[0].removeprefix("# "): text.partition("\n")[2]
    for kind, text in BLOCKS
    if kind in ("python", "toml")
}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
FAILING = [line for line in COMMANDS if line.endswith("# fails")]
SHOWN = [text.splitlines() for kind, text in BLOCKS if kind == "text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of the page."""
    found = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (found / name).write_text(text)
    return found


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each line of the page does, by equifl and pytest of the Python that runs this."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider", "COLUMNS": "500"}
    found = {}
    for command in COMMANDS:
        words = [sys.executable, "-m", *shlex.split(command, comments=True)]
        found[command] = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_fails_only_where_the_page_says_so(
    command: str, done: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    result = done[command]
    assert (result.returncode != 0) == (command in FAILING), result.stdout + result.stderr


@pytest.mark.parametrize(("command", "lines"), list(zip(FAILING, SHOWN, strict=True)))
def test_a_failure_says_what_the_page_shows(
    command: str, lines: list[str], done: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    assert len(lines) == 2
    for line in lines:
        assert line in done[command].stdout + done[command].stderr


def test_every_contract_on_the_page_is_run() -> None:
    contracts = [name for name in FILES if name.startswith("test_")]
    assert contracts == ["test_first.py", "test_mine.py"]
    assert all(f"pytest {name}" in "\n".join(COMMANDS) for name in contracts)


def test_the_rule_is_in_the_configuration(folder: Path, done: dict[str, subprocess.CompletedProcess[str]]) -> None:
    stored = json.loads((folder / "runs/clipped/config.json").read_text())["config"]
    assert stored["server"]["aggregate"] == {"class": "mine:Clipped", "times": 1.5}
