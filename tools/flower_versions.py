"""Test equifl.flower on several versions of Flower, each in an environment of its own.

python -m tools.flower_versions [VERSION ...]     # from the root of the repository; without versions: those below

The tests are those of tests/flower that need neither a SuperLink nor Ray. The table is on docs/flower.md, between its
markers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "flower.md"
VERSIONS = ("1.22.0", "1.26.1", "1.32.1", "1.37.0", "newest")
MARKED = "not deployment and not ray and not slow"
_START, _END = "<!-- table: flower versions -->", "<!-- end -->"


class Outcome(NamedTuple):
    """What came of the tests with a version."""

    version: str
    passed: int
    failed: int
    skipped: int

    @classmethod
    def of(cls, version: str, junit: Path) -> Outcome:
        """From the file that pytest writes."""
        suites = list(ElementTree.parse(junit).getroot().iter("testsuite"))
        count = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors")}
        skipped, failed = sum(int(suite.get("skipped", 0)) for suite in suites), count["failures"] + count["errors"]
        return cls(version, count["tests"] - failed - skipped, failed, skipped)


def requirements(version: str) -> list[str]:
    """What the tests need beside Flower in this version: the extras that they use, and pytest."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    others = [name for extra in ("flower", "report") for name in extras[extra] if not name.startswith("flwr")]
    flower = "flwr" if version == "newest" else f"flwr=={version}"
    return [flower, *others, "numpy>=1.26", "scipy>=1.11", "pytest", "hypothesis"]


def tried(version: str, folder: Path) -> Outcome | str:
    """The outcome of the tests with a version; or why it could not be installed."""
    run(sys.executable, "-m", "venv", folder / "environment")
    python = folder / "environment" / "bin" / "python"
    installed = run(python, "-m", "pip", "install", "--quiet", *requirements(version), check=False)
    if installed.returncode:
        return installed.stderr.strip().splitlines()[-1]
    found = run(python, "-c", "from importlib.metadata import version; print(version('flwr'))").stdout.strip()
    junit = folder / "junit.xml"
    options = ("-q", "-p", "no:cacheprovider", "-m", MARKED, f"--junitxml={junit}", f"--basetemp={folder / 'tests'}")
    tests = run(python, "-m", "pytest", "tests/flower", *options, check=False)
    if not junit.exists():
        sys.exit(f"flwr {found}: pytest ended with {tests.returncode}\n{tests.stdout}{tests.stderr}")
    print(tests.stdout[-2000:] if tests.returncode else "", end="", flush=True)
    return Outcome.of(found, junit)


def run(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command from the root of the repository; a failing one ends all with what it said."""
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"{' '.join(words)[:200]}\n{done.stdout}{done.stderr}")
    return done


def table(outcomes: Iterable[Outcome], python: str) -> str:
    """In Markdown: a row a version."""
    rows = [f"| {one.version} | {one.passed} | {one.failed} | {one.skipped} |" for one in outcomes]
    return "\n".join([f"| Flower, on Python {python} | passed | failed | skipped |", "|---|---|---|---|", *rows])


def with_table(page: str, text: str) -> str:
    """The page with this table between its markers."""
    before, marker, rest = page.partition(_START)
    if not marker:
        raise ValueError(f"{PAGE}: has no line {_START}")
    return f"{before}{marker}\n\n{text}\n\n{rest[rest.index(_END) :]}"


def main(versions: Sequence[str]) -> None:
    """Try every version, and write the table."""
    outcomes = []
    for version in versions or VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            found = tried(version, Path(folder))
        if isinstance(found, str):
            sys.exit(f"flwr {version}: cannot be installed: {found}")
        print(
            f"flwr {found.version}: {found.passed} passed, {found.failed} failed, {found.skipped} skipped", flush=True
        )
        outcomes.append(found)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    PAGE.write_text(with_table(PAGE.read_text(), table(outcomes, python)))


if __name__ == "__main__":
    main(sys.argv[1:])
