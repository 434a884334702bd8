"""docs/own-selector.md and docs/own-aggregator.md: their commands do what the pages show."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # twelve commands, most of them with PyTorch
ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = {
    "own-selector": ["test_first.py", "test_mine.py", "test_seldom.py"],
    "own-aggregator": ["test_first.py", "test_mine.py"],
}
BLOCKS = {
    page: re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    for page in CONTRACTS
}
COMMANDS = [
    (page, line)
    for page, blocks in BLOCKS.items()
    for kind, text in blocks
    if kind == "sh"
    for line in text.splitlines()
]
FAILING = [(page, line) for page, line in COMMANDS if line.endswith("# fails")]
SHOWN = [text.splitlines() for blocks in BLOCKS.values() for kind, text in blocks if kind == "text"]

Play = Callable[[str], tuple[Path, dict[str, subprocess.CompletedProcess[str]]]]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """A folder with all files of a page, and what each command does there, by equifl and pytest of this Python."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider", "COLUMNS": "500"}

    @cache
    def played(page: str) -> tuple[Path, dict[str, subprocess.CompletedProcess[str]]]:
        folder, done = tmp_path_factory.mktemp("own"), {}
        for kind, text in BLOCKS[page]:
            if kind in ("python", "toml"):
                name, _, content = text.partition("\n")
                (folder / name.removeprefix("# ")).write_text(content)
        for command in [line for of, line in COMMANDS if of == page]:
            words = [sys.executable, "-m", *shlex.split(command, comments=True)]
            done[command] = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
        return folder, done

    return played


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_fails_only_where_the_page_says_so(page: str, command: str, play: Play) -> None:
    result = play(page)[1][command]
    assert (result.returncode != 0) == ((page, command) in FAILING), result.stdout + result.stderr


@pytest.mark.parametrize(("failing", "lines"), list(zip(FAILING, SHOWN, strict=True)))
def test_a_failure_says_what_the_page_shows(failing: tuple[str, str], lines: list[str], play: Play) -> None:
    page, command = failing
    result = play(page)[1][command]
    assert len(lines) == 2
    for line in lines:
        assert line in result.stdout + result.stderr


@pytest.mark.parametrize("page", CONTRACTS)
def test_every_contract_on_the_page_is_run(page: str, play: Play) -> None:
    folder, done = play(page)
    assert sorted(path.name for path in folder.glob("test_*.py")) == CONTRACTS[page]
    assert all(f"pytest {name}" in "\n".join(done) for name in CONTRACTS[page])


def test_selectors_and_objective_are_in_the_records(play: Play) -> None:
    records = play("own-selector")[0] / "runs/seldom/rounds.jsonl"
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert {row["selector"] for row in rows} == {"uniform", "rota", "mine", "seldom"}
    assert {tuple(row.get("objective", ())) for row in rows if row["selector"] == "seldom"} == {("G", "g")}


def test_the_rule_is_in_the_configuration(play: Play) -> None:
    stored = json.loads((play("own-aggregator")[0] / "runs/clipped/config.json").read_text())["config"]
    assert stored["server"]["aggregate"] == {"class": "mine:Clipped", "times": 1.5}
