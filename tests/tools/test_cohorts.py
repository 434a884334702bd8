import json
import re

import pytest

from equifl.selectors import SELECTORS
from tools.cohorts import FIGURES, RESULTS, SETTING, caption, classes, play, svg

STORED = json.loads(RESULTS.read_text())


def test_every_selector_was_played() -> None:
    """If not: python -m tools.cohorts."""
    assert set(STORED["selectors"]) == set(SELECTORS)
    assert {path.stem for path in FIGURES.glob("*.svg")} == set(SELECTORS)


@pytest.mark.parametrize("name", STORED["selectors"])
def test_a_figure_shows_what_was_played(name: str) -> None:
    """If not: python -m tools.cohorts --draw."""
    drawn = (FIGURES / f"{name}.svg").read_text()
    assert drawn == svg(name, STORED)
    cohorts = STORED["selectors"][name]["cohorts"]
    assert len(cohorts) == SETTING["rounds"]
    marks = re.search(r'class="c" d="([^"]*)"', drawn)
    assert marks is not None
    assert marks[1].count("M") == sum(map(len, cohorts)) == SETTING["rounds"] * SETTING["per_round"]


def test_a_caption_counts_as_the_cohorts_do() -> None:
    assert "up to 10 times, the least selected 10 times (Gini 0.00)" in caption("rota")


@pytest.mark.parametrize("name", STORED["selectors"])
def test_the_defaults_are_still_those_that_were_played(name: str) -> None:
    """If not: python -m tools.cohorts --all."""
    assert STORED["selectors"][name]["made"] == repr(SELECTORS[name]())


@pytest.mark.slow
@pytest.mark.compiled
def test_the_first_rounds_come_out_the_same() -> None:
    """If not, a selector or the simulator chooses otherwise than it did: python -m tools.cohorts --all."""
    again = play(list(SELECTORS), rounds=2)
    for name, one in again.items():
        assert one["cohorts"] == STORED["selectors"][name]["cohorts"][:2], name
    assert classes() == STORED["classes"]
