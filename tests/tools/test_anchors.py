"""What results/anchors.json says, and that its runs come out the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import Rota, simulate
from tools.anchors import ANCHORS, RESULTS, TARGET, difference, play, summary, written

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="results/ is not part of the source distribution")
STORED: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def test_every_anchor_was_played_with_all_of_its_seeds() -> None:
    """If not: python -m tools.anchors."""
    assert list(STORED) == list(ANCHORS)
    for name, anchor in ANCHORS.items():
        assert {key: STORED[name][key] for key in ("claim", "source", "setting")} == {
            key: anchor[key] for key in ("claim", "source", "setting")
        }
        assert list(STORED[name]["selectors"]) == list(anchor["selectors"])
        for values in STORED[name]["selectors"].values():
            assert all(len(values[measure]) == anchor["settings"]["seeds"] for measure in anchor["measures"])
    assert RESULTS.read_text() == written(STORED)


@pytest.mark.parametrize(
    ("name", "better", "worse", "measure", "sign"),
    [
        ("clustered_sampling", "clustered_sampling", "uniform", "global_loss", -1),
        ("clustered_sampling", "clustered_sampling", "uniform", "accuracy", 1),
        ("power_of_choice", "pow_15", "uniform", "global_loss", -1),
        ("power_of_choice", "pow_15", "pow_2", "global_loss", -1),
        ("halves_of_rota", "balanced", "uniform", "dissimilarity", -1),
        ("halves_of_rota", "balanced", "reshuffle", "dissimilarity", -1),
        ("halves_of_rota", "rota", "reshuffle", "accuracy", 1),
        ("halves_of_rota", "balanced_loss", "balanced", "accuracy", 1),
        ("label_balance", "label_balance", "uniform", "accuracy", 1),
        ("label_balance", "label_balance", "uniform", "dissimilarity", -1),
        ("fedgs", "fedgs", "uniform", "accuracy", 1),
        ("fedgs", "fedgs", "uniform", "gini", -1),
        ("oort", "oort", "uniform", "seconds_to_target", -1),
    ],
)
def test_the_published_ordering_is_seen(name: str, better: str, worse: str, measure: str, sign: int) -> None:
    """In pairs by seed, and by more than the 95 % interval."""
    mean, half_width = difference(STORED, name, better, worse, measure)
    assert sign * mean > half_width


def test_the_docstring_of_rota_says_what_was_measured() -> None:
    text = " ".join((Rota.__doc__ or "").split())
    told = {"Random": "uniform", "(`Reshuffle`)": "reshuffle", "(`Balanced`)": "balanced", "both": "rota"}
    runs = STORED["halves_of_rota"]["selectors"] | STORED["full_participation"]["selectors"]
    for word, name in (told | {"full participation": "full"}).items():
        accuracy, dissimilarity = (float(np.mean(runs[name][measure])) for measure in ("accuracy", "dissimilarity"))
        assert f"{word} {accuracy:.1f} / {dissimilarity:.1f}" in text
    mean, half_width = difference(STORED, "halves_of_rota", "rota", "balanced", "accuracy")
    assert f"add {mean:.1f} +- {half_width:.1f} points of accuracy to balance" in text
    assert mean > half_width
    for measure in ("accuracy", "dissimilarity"):
        mean, half_width = difference(STORED, "halves_of_rota", "reshuffle", "uniform", measure)
        assert abs(mean) < half_width  # "without it their effect is not decided"


def test_the_pages_of_methods_say_what_was_measured() -> None:
    pages = RESULTS.parents[1] / "docs" / "selectors"
    rota = (pages / "rota.md").read_text()
    runs = STORED["halves_of_rota"]["selectors"] | STORED["full_participation"]["selectors"]
    for values in runs.values():
        accuracy, dissimilarity, gini = (np.mean(values[name]) for name in ("accuracy", "dissimilarity", "gini"))
        assert f"| {accuracy:.1f} | {dissimilarity:.1f} | {gini:.2f} |" in rota
    clustered, runs = (pages / "clustered_sampling.md").read_text(), STORED["clustered_sampling"]["selectors"]
    ours, theirs = (np.mean(runs[name]["accuracy"]) for name in ("clustered_sampling", "uniform"))
    mean, half_width = difference(STORED, "clustered_sampling", "uniform", "clustered_sampling", "global_loss")
    assert f"accuracy {ours:.1f} against {theirs:.1f} of Random" in clustered
    assert f"{mean:.2f} ± {half_width:.2f}" in clustered
    page, runs = (pages / "power_of_choice.md").read_text(), STORED["power_of_choice"]["selectors"]
    for name in runs:
        assert f"{np.mean(runs[name]['global_loss']):.2f}" in page
    mean, half_width = difference(STORED, "power_of_choice", "pow_2", "uniform", "global_loss")
    assert abs(mean) < half_width
    for name, measure, digits in (
        ("label_balance", "accuracy", 1),
        ("label_balance", "dissimilarity", 1),
        ("fedgs", "accuracy", 1),
        ("optimal_sampling", "global_loss", 3),
        ("active_fl", "global_loss", 3),
        ("oort", "seconds_to_target", 1),
        ("oort", "accuracy", 1),
        ("hicsfl", "accuracy", 1),
        ("hicsfl", "early_accuracy", 1),
    ):
        mean, half_width = difference(STORED, name, name, "uniform", measure)
        page = " ".join((pages / f"{name}.md").read_text().split())
        assert f"{mean:+.{digits}f} ± {half_width:.{digits}f}" in page
        assert ("not decided" in page) == (abs(mean) <= half_width)
    sides = [difference(STORED, "hicsfl", "hicsfl", "uniform", name)[0] for name in ("early_accuracy", "accuracy")]
    assert sides[0] > 0 > sides[1]  # "was seen, and does not last"
    seconds = [float(np.mean(STORED["oort"]["selectors"][name]["seconds_to_target"])) for name in ("oort", "uniform")]
    oort = " ".join((pages / "oort.md").read_text().split())
    assert "after {:.0f} simulated seconds instead of {:.0f}".format(*seconds) in oort
    counts = [float(np.mean(STORED["fedgs"]["selectors"][name]["gini"])) for name in ("fedgs", "uniform")]
    assert "(a Gini of {:.2f} instead of {:.2f})".format(*counts) in (pages / "fedgs.md").read_text()


def test_seconds_to_the_target_are_those_of_results() -> None:
    results = simulate(
        selectors={"uniform": {}}, **ANCHORS["oort"]["settings"] | {"seeds": 2, "rounds": 80}, progress=False
    )
    found = summary("oort", [row | {"selector": name} for name in ("uniform", "oort") for row in results.records])
    (row,) = results.to_target(accuracy=TARGET).to_dict("records")
    assert row["reached"] == 1.0
    assert np.mean(found["uniform"]["seconds_to_target"]) == pytest.approx(row["seconds"], abs=0.01)


def test_turns_make_participation_equal() -> None:
    gini = {name: values["gini"] for name, values in STORED["halves_of_rota"]["selectors"].items()}
    assert max(gini["rota"] + gini["reshuffle"]) < 0.01
    assert min(gini["balanced"] + gini["uniform"]) > 0.1


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", ANCHORS)
def test_the_first_rounds_come_out_the_same(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not, a selector or the simulator chooses otherwise than it did: python -m tools.anchors."""
    monkeypatch.setenv("EQUIFL_DATA", str(real_data))
    again = summary(name, play(name, rounds=3, seeds=1))
    for selector, values in STORED[name]["selectors"].items():
        assert again[selector]["first_cohorts"] == values["first_cohorts"], selector
