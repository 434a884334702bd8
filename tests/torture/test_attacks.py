"""A short, seeded part of every attack, and every case that ever failed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torture.harness import CASES, attacks, failure_of, lacks, planned, played, reduced, tortured

FOUND = attacks()


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_attack_is_survived(name: str) -> None:
    attack, counts = FOUND[name], Counter[str]()
    if why := lacks(attack):
        pytest.skip(why)
    for seed in range(attack.QUICK):
        counted, failure = played(attack, planned(attack, name, seed))
        assert not failure, f"seed {seed}: {failure}"
        counts += counted
    assert counts, "nothing was tried"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_case_that_once_failed(path: Path) -> None:
    case = json.loads(path.read_text())
    if why := lacks(FOUND[case["attack"]]):
        pytest.skip(why)
    assert not failure_of(FOUND[case["attack"]], case["steps"])


class Broken:
    """An attack whose cases fail if they hold 3 and then 7."""

    QUICK = 1

    def make(self, rng: np.random.Generator) -> list[Any]:
        return list(rng.permutation(20).tolist())

    def play(self, steps: list[Any], folder: Path) -> Counter[str]:
        assert folder.is_dir()
        if 3 in steps and 7 in steps[steps.index(3) :]:
            raise RuntimeError("3, then 7")
        return Counter(numbers=len(steps))


def test_failing_case_is_cut_down_to_the_steps_that_matter() -> None:
    assert reduced(Broken(), [5, 3, 1, 2, 7, 9, 3]) == [3, 7]


def test_torture_reports_seeds_counts_and_stops() -> None:
    ((name, tally),) = tortured({"broken": Broken()}, seconds=5, seed=11)
    assert name == "broken"
    assert len(tally.failures) == 3  # more of the same tells nothing new
    assert tally.counts["numbers"] == 20 * (tally.cases - 3)
    for failure in tally.failures:
        assert failure["steps"] == [3, 7]
        assert "RuntimeError: 3, then 7" in failure["error"]
        assert failure_of(Broken(), planned(Broken(), "broken", failure["seed"]))


def test_a_case_is_the_same_each_time() -> None:
    for name, attack in FOUND.items():
        assert planned(attack, name, 5) == planned(attack, name, 5)
