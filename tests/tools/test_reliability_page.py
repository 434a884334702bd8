import json
from pathlib import Path

from tools.reliability_page import COUNTS, PAGE, counted, table
from torture.harness import attacks

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_counts_that_were_kept() -> None:
    assert table(ROOT / COUNTS) in (ROOT / PAGE).read_text()


def test_every_attack_was_played_and_none_failed() -> None:
    found = counted(ROOT / COUNTS)
    assert set(found) == set(attacks())
    assert all(counts["cases"] > 0 and counts["failures"] == 0 for counts in found.values())


def test_counts_of_several_runs_add_up(tmp_path: Path) -> None:
    for number, failures in enumerate((0, 2)):
        tally = {"cases": 3, "counts": {"selections": 40}, "failures": failures}
        (tmp_path / f"{number}.json").write_text(json.dumps({"seed": 1, "attacks": {"selections": tally}}))
    assert counted(tmp_path)["selections"] == {"cases": 6, "failures": 2, "selections": 80}
    assert table(tmp_path).splitlines()[-1].endswith("| 6 | 80 selections | 2 |")
