"""What docs/results.md and README.md say is what the committed runs say."""

import re
from pathlib import Path

import numpy as np
import pytest

from equifl.paper.tables import DATA
from equifl.statistics import excludes_zero, paired
from tools import evidence_figures, evidence_tables, headline, paper_evidence
from tools.evidence import BEYOND, BEYOND_SELECTORS, EVERYBODY, RULES, as_published, groups
from tools.evidence_tables import (
    ACCURACY,
    BEYOND_ROWS,
    EVEN,
    HALVES,
    LIMIT,
    PAGE,
    PASSES,
    RANDOM,
    ROTA,
    SETTINGS,
    Row,
    Runs,
    in_setting,
)
from tools.results_page import names, rewrite

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"\s+", " ", (ROOT / PAGE).read_text())
README = (ROOT / "README.md").read_text()
RUNS = {data: Runs(data, ROOT / "results" / "evidence") for data in DATA}
BLOCKS = evidence_tables.blocks() | paper_evidence.blocks()


def mean(data: str, row: Row, measure: str = EVEN) -> float:
    return float(RUNS[data].values(row, measure, RUNS[data].seeds([row])).mean())


def difference(data: str, one: Row, other: Row, measure: str = EVEN) -> tuple[float, float]:
    seeds = RUNS[data].seeds([one, other])
    return paired(RUNS[data].values(one, measure, seeds), RUNS[data].values(other, measure, seeds))


def test_the_page_has_every_table_as_the_runs_have_it() -> None:
    """If not: python -m tools.results_page, and read again what is written around the tables."""
    page = (ROOT / PAGE).read_text()
    assert sorted(names(page)) == sorted(BLOCKS)
    assert rewrite(page, BLOCKS) == page


def test_figures_are_of_the_runs() -> None:
    for name, svg in evidence_figures.drawings().items():
        assert (ROOT / "docs" / "figures" / name).read_text() == svg
        assert f"(figures/{name})" in TEXT
    assert (ROOT / headline.FIGURE).read_text() == headline.svg()
    assert headline.markdown() in README


def test_every_run_that_is_asked_for_is_there() -> None:
    """20 seeds each, and of each group it is recorded with what they were made."""
    for data in DATA:
        for group, selectors in groups(data).items():
            if group in as_published(data):
                continue  # defined, not played yet
            assert any(group in go["groups"] for go in RUNS[data].evidence.made_with)
            for name in selectors:
                if name == "reshuffle" and group.endswith(": mean"):
                    continue
                assert len(RUNS[data].seeds([Row(group, name)])) == 20
    assert set(SETTINGS) == {"paper", *BEYOND}
    assert {row.selector for row in BEYOND_ROWS.values()} <= {*BEYOND_SELECTORS, "reshuffle"}


def test_what_selection_gains_is_as_the_page_says() -> None:
    ways = []
    for data in DATA:
        span = mean(data, RANDOM) - mean(data, LIMIT)
        ways += [
            100 * (mean(data, RANDOM) - mean(data, row)) / span for row in (ROTA, HALVES["balance alone: Balanced"])
        ]
    gains = [difference(data, ROTA, RANDOM, ACCURACY)[0] for data in DATA]
    assert f"take {min(ways):.0f} to {max(ways):.0f} % of the way" in TEXT
    assert f"gain {gains[0]:.1f} and {gains[1]:.1f} points of accuracy" in TEXT
    noise = [mean(data, row, "dissimilarity") - mean(data, row) for data in DATA for row in HALVES.values()]
    assert f"it is {min(noise):.1f} to {max(noise):.1f} points higher" in TEXT
    turns = [
        [abs(difference(data, Row("mean", "reshuffle"), RANDOM, m)[0]) for data in DATA] for m in (ACCURACY, EVEN)
    ]
    assert f"worth {max(turns[0]):.1f} points of accuracy and {max(turns[1]):.1f} of dissimilarity at most" in TEXT
    shares = [
        100 * (mean(data, RANDOM) - mean(data, ROTA)) / (mean(data, RANDOM) - mean(data, LIMIT)) for data in DATA
    ]
    assert f"Rota goes {shares[0]:.0f} and {shares[1]:.0f} % of the way" in " ".join(README.split())


def test_those_that_look_at_losses_alone_gain_no_accuracy() -> None:
    for block in BLOCKS["every selector"].split("\n\n"):
        cells = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in block.splitlines()}
        for name in ("Power-of-Choice", "ActiveFL", "Oort"):
            assert "*" not in cells[name][1]
            assert ("*" in cells[name][2]) == ("MNIST" in block and name != "Oort")
        for name in ("SubTrunc", "UnionFL", "Rota", "Balanced", "LabelBalance"):
            assert "*" in cells[name][1]
            assert "*" in cells[name][2]


def test_memory_does_what_the_page_says() -> None:
    """The two claims that were to be tested, and what everybody's training weighted by loss leaves of the first."""
    accuracy, even = {}, {}
    for data in DATA:
        accuracy[data], even[data] = (difference(data, PASSES, LIMIT, measure) for measure in (ACCURACY, EVEN))
        assert sum(even[data]) < 0
        memory, turns = (Row("memory", name) for name in ("rota", "reshuffle"))
        for measure in (ACCURACY, EVEN):
            found, half = difference(data, turns, memory, measure)
            assert abs(found) + half < 0.5
            found, half = difference(data, Row("memory", "uniform"), ROTA, measure)
            assert abs(found) + half < 0.5
        up = [RUNS[data].values(row, "bytes_up", [0])[0] for row in (PASSES, LIMIT)]
        assert up[0] / up[1] == pytest.approx(0.1, rel=1e-3)
    assert accuracy["cifar10"][0] - accuracy["cifar10"][1] > 0
    assert sum(np.abs(accuracy["mnist"])) < 0.5
    weighted = Row(f"{EVERYBODY}by loss", "uniform")
    left = {data: [difference(data, PASSES, weighted, measure) for measure in (ACCURACY, EVEN)] for data in DATA}
    assert f"nothing is left of the difference but {left['cifar10'][0][0]:.1f} points of accuracy on CIFAR-10" in TEXT
    assert excludes_zero(*left["cifar10"][0])
    assert not any(excludes_zero(*pair) for pair in (*left["mnist"], left["cifar10"][1]))
    behind = [
        mean(data, Row("memory", "rota"), ACCURACY) - mean(data, Row("memory", "uniform"), ACCURACY) for data in DATA
    ]
    assert f"it stays {min(behind):.1f} to {max(behind):.1f} points less accurate" in TEXT
    mib = [4 * 100 * parameters / 2**20 for parameters in (44_426, 62_006)]
    assert f"({mib[0]:.0f} and {mib[1]:.0f} MiB here" in TEXT


def test_averaging_does_what_the_page_says() -> None:
    averaged = RANDOM._replace(model="averaged")
    moves = [f"from {mean(data, RANDOM):.1f} to {mean(data, averaged):.1f} points" for data in DATA]
    assert f"takes Random {moves[0]} on MNIST and {moves[1].removesuffix(' points')} on CIFAR-10" in TEXT
    rows = [Row("mean", name, "averaged") for name in ("uniform", "reshuffle", "power_of_choice", "subtrunc", "rota")]
    assert min(rows, key=lambda row: mean("mnist", row)).selector == "power_of_choice"
    assert RULES["momentum"][0] == {"class": "momentum", "beta": 0.5}


def test_what_is_said_of_other_rules_and_selectors_is_so() -> None:
    for data in DATA:
        slow, _ = difference(data, Row("q-FedAvg", "uniform"), RANDOM, ACCURACY)
        assert slow < -5  # "far behind"
        for name in ("uniform", "reshuffle"):  # "momentum helps cohorts that are not balanced"
            found, half = difference(data, Row("momentum", name), Row("mean", name))
            assert found + half < 0
        found, half = difference(data, Row("momentum", "rota"), ROTA)
        assert found + half > 0
        for measure, side in ((ACCURACY, -1), (EVEN, 1)):  # "and makes everybody's training slightly worse"
            found, half = difference(data, Row(f"{EVERYBODY}momentum", "uniform"), LIMIT, measure)
            assert 0 < side * found - half < 1
    assert sum(difference("cifar10", Row("q-FedAvg", "uniform"), RANDOM)) < 0  # "more even than Random on CIFAR-10"
    for name in ("fedgs", "hicsfl"):  # "behind Random on MNIST"
        assert sum(difference("mnist", Row("mean", name), RANDOM, ACCURACY)) < 0
    losses, rota = (Row("mean", name, "averaged") for name in ("power_of_choice", "rota"))
    assert sum(difference("mnist", losses, rota, ACCURACY)) < 0  # "and less accurate"


def test_what_is_said_of_other_settings_is_so() -> None:
    """Balanced cohorts are ahead of Random in all of them, and memory is more even than everybody's training."""
    for data in DATA:
        for variant in SETTINGS:
            for row in (ROTA, Row("mean", "balanced_loss")):
                for measure, side in ((ACCURACY, 1), (EVEN, -1)):
                    found, half = difference(data, in_setting(variant, row), in_setting(variant, RANDOM), measure)
                    assert side * found - half > 0
            found, half = difference(data, in_setting(variant, PASSES), in_setting(variant, LIMIT))
            assert found + half < 0
        for measure, side in ((ACCURACY, 1), (EVEN, -1)):
            one, other = (in_setting("online_0.3", Row("mean", name)) for name in ("balanced_loss", "rota"))
            found, half = difference(data, one, other, measure)
            assert side * found - half > 0
    spans = []
    for variant in ("dirichlet_0.5", "long"):
        rows = [in_setting(variant, row) for row in BEYOND_ROWS.values()]
        found_there = [mean("mnist", row) for row in rows if RUNS["mnist"].complete([row])]
        spans.append(max(found_there) - min(found_there))
    assert f"at Dirichlet 0.5 all are within {spans[0]:.1f} points of each other on MNIST" in TEXT
    assert f"after 350 rounds within {spans[1]:.1f}, all above 94 %" in TEXT
    gains = [difference(data, in_setting("long", ROTA), in_setting("long", RANDOM), ACCURACY)[0] for data in DATA]
    behind = [-difference(data, in_setting("long", ROTA), in_setting("long", LIMIT), ACCURACY)[0] for data in DATA]
    assert (
        "stays {:.1f} and {:.1f} points more accurate than Random, {:.1f} and {:.1f} behind everybody".format(
            *gains, *behind
        )
        in TEXT
    )
    divfl = in_setting("dirichlet_0.1", Row("mean", "divfl")), in_setting("dirichlet_0.1", RANDOM)
    assert sum(difference("mnist", *divfl, ACCURACY)) < 0
