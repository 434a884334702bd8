"""What docs/results.md and README.md say is what the committed runs say."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.paper.tables import DATA, LAMBDAS
from equifl.statistics import excludes_zero, interval, paired
from tools import evidence_figures, evidence_tables, headline, paper_evidence, same_accuracy
from tools.evidence import BEYOND, BEYOND_SELECTORS, EVERYBODY, RULES, groups, house
from tools.evidence_tables import (
    ACCURACY,
    AS_PUBLISHED,
    BEYOND_ROWS,
    EVEN,
    HALVES,
    LIMIT,
    PAGE,
    PASSES,
    RANDOM,
    ROTA,
    ROTA_AVERAGED,
    SETTINGS,
    TURNS,
    TURNS_AVERAGED,
    Row,
    Runs,
    in_setting,
    title_of,
)
from tools.results_page import names, rewrite

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"\s+", " ", (ROOT / PAGE).read_text())
README = (ROOT / "README.md").read_text()
RUNS = {data: Runs(data, ROOT / "results" / "evidence") for data in DATA}
BLOCKS = evidence_tables.blocks() | paper_evidence.blocks() | same_accuracy.blocks()


def mean(data: str, row: Row, measure: str = EVEN) -> float:
    return float(RUNS[data].values(row, measure, RUNS[data].seeds([row])).mean())


def difference(data: str, one: Row, other: Row, measure: str = EVEN) -> tuple[float, float]:
    seeds = RUNS[data].seeds([one, other])
    return paired(RUNS[data].values(one, measure, seeds), RUNS[data].values(other, measure, seeds))


def way(data: str, row: Row) -> float:
    """Percent of the way from Random's dissimilarity to everybody's."""
    start, end = mean(data, RANDOM), mean(data, LIMIT)
    return 100 * (start - mean(data, row)) / (start - end)


def cells(block: str, title: str) -> list[str]:
    """What a table has beside a title."""
    [line] = [line for line in BLOCKS[block].splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


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
    """20 seeds each, and of each group it is recorded with what they were made; the change log has their number."""
    played = [runs for data in DATA for group in RUNS[data].evidence.runs.values() for runs in group.values()]
    assert f"by {sum(map(len, played)):,} runs on MNIST and CIFAR-10" in (ROOT / "CHANGELOG.md").read_text()
    for data in DATA:
        for group, selectors in groups(data).items():
            assert any(group in go["groups"] for go in RUNS[data].evidence.made_with)
            for name in selectors:
                assert len(RUNS[data].seeds([Row(group, name)])) == 20
    assert set(SETTINGS) == {"paper", *BEYOND}
    assert {row.selector for row in BEYOND_ROWS.values()} <= {*BEYOND_SELECTORS}


def test_what_selection_gains_is_as_the_page_says() -> None:
    balanced = (ROTA, *(row for title, row in HALVES.items() if title.startswith("balance alone")))
    ways = [way(data, row) for data in DATA for row in balanced]
    gains = [difference(data, ROTA, RANDOM, ACCURACY)[0] for data in DATA]
    assert f"take {min(ways):.0f} to {max(ways):.0f} % of the way" in TEXT
    assert f"gain {gains[0]:.1f} and {gains[1]:.1f} points of accuracy" in TEXT
    noise = [mean(data, row, "dissimilarity") - mean(data, row) for data in DATA for row in HALVES.values()]
    assert f"by {min(noise):.1f} to {max(noise):.1f} points in the first table" in TEXT
    for data in DATA:  # "that turns alone are worth anything is not decided"
        assert "*" not in "".join(cell_of_every_selector(data, "Reshuffle")[:2])
    readme = " ".join(README.split())
    shares = [way(data, ROTA) for data in DATA]
    assert f"Rota goes {shares[0]:.0f} and {shares[1]:.0f} % of the way" in readme
    averaged = {
        name: "{:.0f} and {:.0f} %".format(*(way(data, Row("mean", name, "averaged")) for data in DATA))
        for name in ("uniform", "reshuffle", "rota")
    }
    assert f"Random goes {averaged['uniform']} of the way, Reshuffle {averaged['reshuffle']}" in TEXT
    assert f"Rota {averaged['rota']}." in TEXT
    less, _ = difference("mnist", TURNS_AVERAGED, ROTA, ACCURACY)
    said = f"merely take turns ({averaged['reshuffle']}; {-less:.1f} points less accurate on MNIST)"
    assert f"{said}, and takes Rota to {averaged['rota']}." in readme
    for data in DATA:  # "equivalent in accuracy and evenness", as also Rota's page and docstring say
        for measure in (ACCURACY, EVEN):
            found, half = difference(data, ROTA, Row("mean", "balanced"), measure)
            assert abs(found) + half < 0.5


def cell_of_every_selector(data: str, title: str) -> list[str]:
    block = BLOCKS["every selector"].split("\n\n")[DATA.index(data)]
    [line] = [line for line in block.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_selectors_are_ranked_as_the_page_says() -> None:
    for data in DATA:
        found = {title_of(name): cell_of_every_selector(data, title_of(name)) for name in house()}
        accurate, even = ([name for name, row in found.items() if "*" in row[column]] for column in (0, 1))
        best = {
            "Rota",
            "Balanced",
            "Balanced, highest loss",
            "LabelBalance",
            "SubTrunc",
            "UnionFL",
            "ClusteredSampling",
        }
        behind = {"FedGS", "HiCSFL"} if data == "mnist" else {"DivFL"}  # DivFL is ahead
        assert set(accurate) == best | behind
        others = {"Power-of-Choice", "ActiveFL", "HiCSFL"} if data == "mnist" else {"DivFL"}
        assert set(even) == best | others
        levels = {name: mean(data, Row("mean", name)) for name in house()}
        balanced = [levels.pop(name) for name in ("rota", "balanced", "balanced_loss", "label_balance")]
        assert max(balanced) < min(levels.values())
        assert sorted(levels, key=lambda name: levels[name])[:2] == ["subtrunc", "unionfl"]
    for name in ("fedgs", "hicsfl"):  # "behind Random on MNIST"
        assert sum(difference("mnist", Row("mean", name), RANDOM, ACCURACY)) < 0
    assert f"Gini {mean('mnist', Row('mean', 'label_balance'), 'gini'):.2f}" in TEXT


def test_models_of_the_same_accuracy_are_as_the_page_says() -> None:
    decided, matched = same_accuracy.decided(), {data: same_accuracy.matched(data) for data in DATA}
    even, rounds = (
        {data: {title: by[title].mean() for title in by} for data, by in found.items()}
        for found in ({d: at.dissimilarity for d, at in matched.items()}, {d: at.rounds for d, at in matched.items()})
    )
    leads = [even[data]["Random"] - even[data]["Rota"] for data in DATA]
    assert f"Rota is still {leads[0]:.1f} and {leads[1]:.1f} points more even than Random, and is there after" in TEXT
    said = [f"{rounds[data]['Rota']:.0f} rounds instead of {rounds[data]['Random']:.0f}" for data in DATA]
    assert f"after {said[0]}, and {said[1].replace(' rounds', '')}." in TEXT
    for name in ("SubTrunc", "UnionFL"):
        assert ("mnist", name, "rounds") in decided
        assert ("mnist", name, "dissimilarity") not in decided
    for data in DATA:
        at = matched[data].dissimilarity
        assert {(data, "Rota", measure) for measure in ("rounds", "dissimilarity")} <= decided
        assert not excludes_zero(*paired(at["Rota"], at["SubTrunc"]))
        more, half = paired(at["Rota"], at["Balanced"])
        assert (more - half > 0) == (data == "cifar10")


def test_every_run_is_taken_where_it_first_has_the_accuracy_of_all() -> None:
    """By a loop of its own, on what is stored."""
    for data in DATA:
        at, runs = same_accuracy.matched(data), RUNS[data].evidence.runs
        best = [
            max(accuracy for accuracy, _ in runs[row.group][row.selector][seed]["rounds"].values())
            for row in same_accuracy.ROWS.values()
            for seed in range(20)
        ]
        assert at.accuracy == min(best)
        for title, row in same_accuracy.ROWS.items():
            for seed in range(20):
                course = [(0, [-1.0, 0.0]), *runs[row.group][row.selector][seed]["rounds"].items()]
                for (before, (low, start)), (after, (high, end)) in pairwise(course):
                    if high >= at.accuracy:
                        share = 1.0 if before == 0 else (at.accuracy - low) / (high - low)
                        assert at.rounds[title][seed] == pytest.approx(
                            int(before) + share * (int(after) - int(before))
                        )
                        assert at.dissimilarity[title][seed] == pytest.approx(start + share * (end - start))
                        break


def test_what_authors_do_more_is_not_ahead_but_once() -> None:
    ahead = []
    for title, (one, default) in AS_PUBLISHED.items():
        for column, (data, measure) in enumerate((data, m) for data in DATA for m in (ACCURACY, EVEN)):
            found, half = difference(data, one, default, measure)
            shown = cells("as published", title)[column]
            assert f"({found:+.1f} ± {half:.1f}" in shown
            if "*" in shown and (found > 0) == (measure == ACCURACY):
                ahead.append((one.selector, data))
    assert ahead == [("hicsfl", "mnist")]
    assert sum(difference("mnist", Row("falling: mean", "hicsfl"), RANDOM, ACCURACY)) < 0


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
            found, half = difference(data, TURNS, PASSES, measure)  # "Reshuffle is equivalent to Rota"
            assert abs(found) + half < 0.5
        assert sum(difference(data, turns, LIMIT, ACCURACY)) > 0
        up = [RUNS[data].values(row, "bytes_up", [0])[0] for row in (PASSES, LIMIT)]
        assert up[0] / up[1] == pytest.approx(0.1, rel=1e-3)
    less = [difference(data, Row("memory", name), LIMIT)[0] for data in DATA for name in ("reshuffle", "rota")]
    assert max(np.abs(less[:2])) < 0.1
    assert f"on CIFAR-10 {less[3]:.1f} points less" in " ".join(TEXT.replace("(on ", "on ").split())
    left = [
        -difference(data, Row("memory by loss", name, "averaged"), PASSES, ACCURACY)[0]
        for data in DATA
        for name in ("uniform", "subtrunc")
    ]
    assert f"Random and SubTrunc stay {min(left):.1f} to {max(left):.1f} points less accurate" in TEXT
    assert sum(np.abs(accuracy["mnist"])) < 0.5
    assert f"on CIFAR-10 {accuracy['cifar10'][0]:.1f} points more by the interval" in TEXT
    assert accuracy["cifar10"][0] > accuracy["cifar10"][1]
    shown = cells("differences", "Rota with memory by loss and averaging less everybody")
    assert ["*" in cell for cell in shown] == [False, True, False, True]
    shown = cells("differences", "the same, everybody weighted by loss, too")
    assert not any("*" in cell for cell in shown)  # "nothing of the difference is decided"
    behind = [
        mean(data, Row("memory", "rota"), ACCURACY) - mean(data, Row("memory", "uniform"), ACCURACY) for data in DATA
    ]
    assert f"it stays {min(behind):.1f} to {max(behind):.1f} points less accurate" in TEXT
    assert f"turns add {behind[0]:.1f} and {behind[1]:.1f} points of accuracy to that" in TEXT
    mib = [4 * 100 * parameters / 2**20 for parameters in (44_426, 62_006)]
    assert f"({mib[0]:.0f} and {mib[1]:.0f} MiB here" in TEXT


def test_averaging_does_what_the_page_says() -> None:
    averaged = RANDOM._replace(model="averaged")
    moves = [f"from {mean(data, RANDOM):.1f} to {mean(data, averaged):.1f} points" for data in DATA]
    assert f"takes Random {moves[0]} on MNIST and {moves[1].removesuffix(' points')} on CIFAR-10" in TEXT
    rows = [Row("mean", name, "averaged") for name in ("uniform", "reshuffle", "power_of_choice", "subtrunc", "rota")]
    assert min(rows, key=lambda row: mean("mnist", row)).selector == "power_of_choice"
    behind = []
    for data in DATA:
        found, half = difference(data, rows[3], LIMIT)
        assert found + half < 0.2, "SubTrunc is no less even than everybody"
        for row in rows[2:4]:
            found, half = difference(data, row, ROTA_AVERAGED, ACCURACY)
            assert found + half < 0
            behind.append(-found)
    assert f"both are less accurate than Rota with it, by {min(behind):.1f} to {max(behind):.1f} points" in TEXT
    assert RULES["momentum"][0] == {"class": "momentum", "beta": 0.5}


def test_what_is_said_of_other_rules_and_selectors_is_so() -> None:
    for data in DATA:
        slow, _ = difference(data, Row("q-FedAvg", "uniform"), RANDOM, ACCURACY)
        assert slow < -5  # "far behind"
        for name in ("uniform", "reshuffle"):  # "momentum helps Random and Reshuffle"
            found, half = difference(data, Row("momentum", name), Row("mean", name))
            assert found + half < 0
        found, half = difference(data, Row("momentum", "rota"), ROTA)
        assert found + half > 0
        for measure, side in ((ACCURACY, -1), (EVEN, 1)):  # "and makes everybody's training slightly worse"
            found, half = difference(data, Row(f"{EVERYBODY}momentum", "uniform"), LIMIT, measure)
            assert 0 < side * found - half < 1
    assert sum(difference("cifar10", Row("q-FedAvg", "uniform"), RANDOM)) < 0  # "more even than Random on CIFAR-10"


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
    spans = {}
    for data in DATA:
        for variant in ("dirichlet_0.5", "long"):
            rows = [in_setting(variant, row) for row in BEYOND_ROWS.values()]
            for measure in (EVEN, ACCURACY):
                found_there = [mean(data, row, measure) for row in rows]
                spans[data, variant, measure] = f"{max(found_there) - min(found_there):.1f}"
    near, far = (spans["mnist", "dirichlet_0.5", measure] for measure in (EVEN, ACCURACY))
    assert near == far
    assert f"at Dirichlet 0.5 all are within {near} points of each other in dissimilarity and in accuracy" in TEXT
    said = {
        ("mnist", "long"): "after 350 rounds within {} and {}, all above 94 %",
        ("cifar10", "dirichlet_0.5"): "at Dirichlet 0.5 they are {} and {} points apart",
        ("cifar10", "long"): "after 500 rounds {} and {}.",
    }
    for place, words in said.items():
        assert words.format(*(spans[(*place, measure)] for measure in (EVEN, ACCURACY))) in TEXT
    turns: dict[str, list[float]] = {
        data: [mean(data, in_setting(v, TURNS_AVERAGED), m) - mean(data, in_setting(v, ROTA), m) for v in SETTINGS]
        for data, m in (("mnist", ACCURACY), ("cifar10", EVEN))
    }
    sure = []
    for variant in SETTINGS:
        found, half = difference("cifar10", in_setting(variant, TURNS_AVERAGED), in_setting(variant, ROTA))
        assert found - half < 0
        sure.append(found + half < 0)
    assert (sum(sure), len(sure)) == (4, 6)
    uneven = max(mean("mnist", in_setting(v, TURNS_AVERAGED)) - mean("mnist", in_setting(v, ROTA)) for v in SETTINGS)
    assert (
        f"On MNIST it is up to {-min(turns['mnist']):.1f} points less accurate and {uneven:.1f} less even, but ahead"
        in TEXT
    )
    assert max(turns["mnist"]) == turns["mnist"][list(SETTINGS).index("online_0.3")] > 0
    for variant in ("dirichlet_0.5", "long"):  # "as even as Rota, at most 0.4 points less accurate"
        pair = in_setting(variant, TURNS_AVERAGED), in_setting(variant, ROTA)
        for data in DATA:
            assert sum(difference(data, *pair)) < 0.1
            assert round(difference(data, *pair, ACCURACY)[0], 1) >= -0.4
    gains = [difference(data, in_setting("long", ROTA), in_setting("long", RANDOM), ACCURACY)[0] for data in DATA]
    behind = [-difference(data, in_setting("long", ROTA), in_setting("long", LIMIT), ACCURACY)[0] for data in DATA]
    assert (
        "stays {:.1f} and {:.1f} points more accurate than Random, {:.1f} and {:.1f} behind everybody".format(
            *gains, *behind
        )
        in TEXT
    )
    divfl = in_setting("dirichlet_0.1", Row("mean", "divfl")), in_setting("dirichlet_0.1", RANDOM)
    found, half = difference("mnist", *divfl, ACCURACY)
    assert found + half < 0
    assert f"it is {-found:.1f} points less accurate than Random" in (ROOT / "docs/selectors/divfl.md").read_text()
    for data in DATA:
        found, half = difference(data, Row("mean", "divfl"), RANDOM, ACCURACY)
        assert found + half > 0  # "with three classes a client it is not"


def test_what_is_said_of_the_paper_is_so() -> None:
    same = {}
    for data in DATA:
        runs = RUNS[data].evidence.runs["paper"]
        same[data] = [
            sum(_figures(runs[f"subtrunc_{lam}"][seed]) == _figures(runs["divfl_r10"][seed]) for seed in range(20))
            for lam in LAMBDAS
        ]
    assert f"and {min(same['mnist'])} to {max(same['mnist'])} of 20 runs on MNIST" in TEXT
    assert f"({min(same['cifar10'])} to {max(same['cifar10'])} on CIFAR-10)" in TEXT
    slopes = {}
    for data in DATA:
        series = [
            RUNS[data].values(Row("paper", f"subtrunc_factor_{lam}"), EVEN, range(20)) for lam in (0.1, 0.5, 0.95)
        ]
        slopes[data] = interval((series[2] - series[0]) / 2)
    assert f"dissimilarity falls by {-slopes['mnist'][0]:.2f} ± {slopes['mnist'][1]:.2f} points a step" in TEXT
    assert not excludes_zero(*slopes["cifar10"])
    for data in DATA:
        for name in ("subtrunc", "unionfl"):
            assert sum(difference(data, Row("mean", name), RANDOM)) < 0


def _figures(run: dict[str, Any]) -> list[Any]:
    return [run[name] for name in ("rounds", "last", "averaged", "clients_last")]


def test_runs_of_tuned_defaults_were_played_again() -> None:
    """Twenty seeds of two selectors in two groups on two data sets, as the page says."""
    again = [go["replayed"] for data in DATA for go in RUNS[data].evidence.made_with if "replayed" in go]
    assert [len(parts) for parts in again] == [2, 2]
    assert f"so {20 * 2 * sum(map(len, again))} of their runs were played again" in TEXT
