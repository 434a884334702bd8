"""Results of folders that are damaged: what can be shown is shown, and a sentence says what is left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from equifl.cli.main import main
from equifl.experiment.records import sealed
from equifl.experiment.results import load_results
from equifl.experiment.run_folder import RunFolder
from tests.report.example_records import MADE_WITH, configuration, records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run of six rounds, nine records each; every second round is evaluated."""
    config = configuration()
    with RunFolder.open(tmp_path / "run", config, MADE_WITH) as folder:
        folder.append(records(config))
    return tmp_path / "run"


def damage(folder: Path, line: int) -> None:
    lines = (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"selector", b"selectos")
    (folder / "rounds.jsonl").write_bytes(b"".join(lines))


def test_rounds_before_the_damage_are_shown(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(folder, 40)
    results = load_results(folder)
    left_out = (
        f"{folder / 'rounds.jsonl'}, line 40: is damaged (its checksum does not match); this record and all later"
    )
    assert results.left_out.startswith(left_out)
    assert results.rounds_played == 4
    assert results.table().round == 4
    assert results.table().notes[-1].startswith(left_out)
    (message,) = caplog.messages
    assert message == results.left_out


def test_the_report_says_what_is_left_out(folder: Path) -> None:
    damage(folder, 40)
    found = CliRunner().invoke(main, ["report", str(folder)])
    assert found.exit_code == 0
    page = (folder / "report.html").read_text()
    assert "line 40: is damaged (its checksum does not match); this record and all later ones are left out." in page
    assert "4 of 6 rounds are played" in page


def test_without_an_evaluated_round_before_the_damage_there_is_one_sentence(folder: Path) -> None:
    damage(folder, 12)
    found = CliRunner().invoke(main, ["report", str(folder)])
    assert (found.exit_code, found.stdout) == (2, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith(
        f"equifl: {folder / 'rounds.jsonl'}, line 12: is damaged (its checksum does not match); put"
    )
    assert not (folder / "report.html").exists()


def forged(path: Path, **changes: Any) -> None:
    """Write the first record again with other values, as a program would that knows of checksums."""
    first, *others = path.read_bytes().splitlines(keepends=True)
    stored = {key: value for key, value in json.loads(first).items() if key != "crc"}
    path.write_bytes(b"".join([sealed(json.dumps(stored | changes)), *others]))


@pytest.mark.parametrize(
    "changes",
    [
        {"cohort": None},
        {"cohort": [10**12]},
        {"bytes_down": "many"},
        {"objective": [1, 2]},
        {"selector": "nobody"},
        {"local_loss": []},
        {"round": 3},
        {"accuracy": 50.0},
    ],
)
def test_whatever_a_record_holds_it_ends_in_one_sentence(folder: Path, changes: dict[str, Any]) -> None:
    forged(folder / "rounds.jsonl", **changes)
    found = CliRunner().invoke(main, ["report", str(folder)])
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"equifl: {folder / 'rounds.jsonl'}, line 1: is ")
