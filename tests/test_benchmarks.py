"""What the benchmarks say about themselves: pages show what was measured, and the race counts work and memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # scripts, not a package

import gpu  # noqa: E402
import growth  # noqa: E402
import simulation  # noqa: E402
from race.course import EXAMPLES, Course  # noqa: E402
from race.memory import Peak, family  # noqa: E402


def results(name: str) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    found: dict[str, dict[str, dict[str, dict[str, float]]]]
    found = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return found


def test_the_pages_show_the_race_as_it_was_measured() -> None:
    found = results("simulation.json")
    rows, failed = found["rows"], found["failed"]
    assert simulation.tables(rows, failed) in (ROOT / "docs" / "performance.md").read_text()
    assert simulation.table("A", rows["A"], failed["A"]) in (ROOT / "README.md").read_text()


def test_the_page_shows_what_a_gpu_reached() -> None:
    assert gpu.table(results("gpu.json")) in (ROOT / "docs" / "performance.md").read_text()


def test_the_page_shows_the_growth_as_it_was_measured() -> None:
    table = growth.read(ROOT / "benchmarks" / "results" / "growth.json")
    assert growth.table(table) in (ROOT / "docs" / "performance.md").read_text()
    assert growth.figure(table) == (ROOT / "docs" / "figures" / "growth.svg").read_text()


@pytest.mark.parametrize(("work", "steps"), [("A", 10), ("B", 19)])
def test_who_did_other_work_is_out_of_the_race(work: str, steps: int) -> None:
    course = Course(work, 1, "", 0.0)
    assert -(-course.taken // 32) == course.steps == steps
    assert course.taken <= EXAMPLES
    done = course.report([1.0, 3.0], 2 * 10 * steps, (2.3, 2.0))
    assert done["seconds"] == [2.0]
    assert done["steps_a_round"] == 10 * steps
    for taken, after in ((2 * 10 * steps - 1, 2.0), (2 * 10 * steps, 2.3), (2 * 10 * steps, np.nan)):
        with pytest.raises(SystemExit, match="not the same work"):
            course.report([1.0, 3.0], taken, (2.3, after))


def test_memory_is_that_of_the_whole_family() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = [1.5] * 2**24; print(1); input()'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert process.pid in family(os.getpid())
    peak = Peak(process.pid)
    peak.start()
    peak.join(0.5)
    peak.over.set()
    process.communicate(b"\n")
    assert peak.bytes > 2**26
