"""docs/quickstart.md and docs/tutorials: their Python runs as it stands, and prints what they show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHECKED = {
    "quickstart.md": [pytest.mark.slow],
    "tutorials/compare.md": [pytest.mark.slow],
    "tutorials/selector.md": [pytest.mark.slow],
    "tutorials/server-rule.md": [pytest.mark.slow],
    "tutorials/federation.md": [pytest.mark.slow, pytest.mark.flower, pytest.mark.ray],
}


def test_every_tutorial_is_run() -> None:
    written = {path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorials").glob("*.md")}
    assert written - {"tutorials/index.md"} == set(CHECKED) - {"quickstart.md"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in CHECKED.items()])
def test_it_runs_and_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((DOCS / name).read_text())
    (tmp_path / "tutorial.py").write_text("\n".join(text for kind, text in blocks if kind == "python"))
    settings = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "tutorial.py"],
        cwd=tmp_path,
        env=os.environ | settings | {"RAY_DISABLE_DOCKER_CPU_WARNING": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    rest = run.stdout
    for shown in (text for kind, text in blocks if kind == "text"):
        assert shown in rest, f"{name} shows {shown!r}; what was printed is {run.stdout!r}"
        rest = rest.partition(shown)[2]
