"""The versions of Flower that are tried, and the table that says so."""

import re
import tomllib
from pathlib import Path

import pytest

from tools.flower_versions import PAGE, ROOT, VERSIONS, Outcome, requirements, table, with_table

LEAST = "1.22"


def test_counts_come_from_what_pytest_writes(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>')
    assert Outcome.of("1.30.0", junit) == Outcome("1.30.0", passed=3, failed=3, skipped=3)


def test_each_version_is_installed_with_what_the_tests_need() -> None:
    assert requirements("1.30.0")[0] == "flwr==1.30.0"
    assert requirements("newest")[0] == "flwr"
    assert {name.partition(">")[0] for name in requirements("newest")} >= {"filelock", "plotly", "numpy", "pytest"}


def test_a_table_is_put_between_its_marks() -> None:
    text = table([Outcome("1.30.0", 5, 0, 1)], "3.11")
    page = "a\n<!-- table: flower versions -->\nold\n<!-- end -->\nb"
    assert "| 1.30.0 | 5 | 0 | 1 |" in with_table(page, text)
    assert with_table(with_table(page, text), text) == with_table(page, text)
    with pytest.raises(ValueError, match="has no line"):
        with_table("a", text)


def test_the_page_has_every_version_without_a_failure_from_the_least_one_on() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"flwr>={LEAST}" in extras["flower"]
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [version for version, *_ in rows][:-1] == list(VERSIONS[:-1])
    assert rows[0][0].startswith(f"{LEAST}.")
    assert all(int(passed) > 200 and failed == "0" for _, passed, failed, _ in rows)
