import numpy as np
import pytest

from equifl.paper.claims import Claim, Verdict, claims, judge, values_of
from equifl.paper.tables import SELECTORS


def made_up(seeds: int = 8) -> dict[str, dict[int, dict[str, float]]]:
    """Every selector the same but for noise that all share: differences are 0."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=seeds)
    return {
        name: {seed: {"dissimilarity": 8 + noise[seed], "accuracy": 80 + noise[seed]} for seed in range(seeds)}
        for name in SELECTORS
    }


def verdict(text: str, results: dict[str, dict[int, dict[str, float]]], data: str = "mnist") -> Verdict:
    (claim,) = [claim for claim in claims(data) if claim.text.startswith(text)]
    return judge(claim, values_of(results, range(8)))


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_every_claim_of_section_five_is_there(data: str) -> None:
    tables = [claim.table for claim in claims(data)]
    assert tables == ["table1"] * 6 + ["table2"] + ["table3"] * 2 + ["table4"]


def test_a_difference_is_paired_by_seed() -> None:
    """The noise is a hundred times the difference, but both have the same noise."""
    results = made_up()
    for seed in range(8):
        results["subtrunc_0.95"][seed]["dissimilarity"] -= 0.01 + 0.001 * (seed % 2)
    found = verdict("SubTrunc is less dissimilar than DivFL", results)
    assert found.word == "holds"
    assert found.mean == pytest.approx(-0.0105)


def test_the_other_way_round_it_is_contradicted() -> None:
    results = made_up()
    for seed in range(8):
        results["unionfl_5"][seed]["dissimilarity"] += 1 + 0.1 * (seed % 2)
    found = verdict("UnionFL is less dissimilar than Random", results)
    assert found.mean - found.half_width > 0 > found.claim.printed
    assert found.word == "contradicted"


def test_what_the_interval_does_not_decide_is_not_decided() -> None:
    results = made_up()
    for seed in range(8):
        results["subtrunc_0.95"][seed]["dissimilarity"] += 2 * (-1) ** seed
    found = verdict("SubTrunc is less dissimilar than DivFL", results)
    assert abs(found.claim.printed) < found.half_width
    assert found.word == "not decided at 8 seeds"


def test_no_difference_where_the_paper_has_one_contradicts_it() -> None:
    """7.91 and 7.96 in table IV: an interval of width 0 has room for one of 0 and -0.05."""
    found = verdict("identity is less dissimilar", made_up())
    assert found.word == "contradicted"
    assert found.claim.printed == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("data", "text", "printed"),
    [
        ("mnist", "SubTrunc is less dissimilar than DivFL", 7.96 - 8.89),
        ("cifar10", "UnionFL is less dissimilar than Random", 12.55 - 14.42),
        ("mnist", "UnionFL is less dissimilar than Power-of-Choice", 0.0),
        ("mnist", "accuracy grows with the window", (83.74 - 83.27) / 2),
        (
            "mnist",
            "dissimilarity falls as lambda grows",
            np.polyfit(range(6), [8.9, 8.38, 8.18, 8.14, 8.07, 7.96], 1)[0],
        ),
    ],
)
def test_the_papers_value_is_the_same_number_of_its_printed_means(data: str, text: str, printed: float) -> None:
    (claim,) = [claim for claim in claims(data) if claim.text.startswith(text)]
    assert claim.printed == pytest.approx(printed)


def test_every_claim_has_a_value_of_the_papers() -> None:
    assert all(np.isfinite(claim.printed) for data in ("mnist", "cifar10") for claim in claims(data))


def test_a_trend_is_a_slope_over_the_settings_in_order() -> None:
    results = made_up()
    for step, window in enumerate((2, 5, 10)):
        for seed in range(8):
            results[f"unionfl_{window}"][seed]["accuracy"] += 2 * step + 0.01 * (seed % 2) * step
    found = verdict("accuracy grows with the window", results)
    assert found.mean == pytest.approx(2.005)
    assert found.word == "holds"
    assert verdict("dissimilarity falls as the window grows", results).mean == pytest.approx(0)


def test_which_side_counts() -> None:
    above = Claim("x", "table1", lambda values: values("a", "b"), below=False)
    assert Verdict(above, 1.0, 0.5, 3).word == "holds"
    assert Verdict(above, -1.0, 0.5, 3).word == "contradicted"
    assert Verdict(above, 0.3, 0.5, 3).word == "not decided at 3 seeds"
    assert Verdict(above, 0.3, float("nan"), 1).word == "not decided at one seed"
    assert Verdict(above, 0.3, 0.5, 3).outcome == "not decided"


@pytest.mark.parametrize(
    ("mean", "half_width", "printed", "word"),
    [
        (-2.0, 0.5, -9.0, "holds"),  # the paper's value is another, but the words are right
        (0.07, 0.37, -0.93, "contradicted"),
        (-0.4, 0.5, -0.93, "contradicted"),
        (-0.5, 0.5, -0.93, "not decided at 20 seeds"),  # an interval has its ends in it
        (-0.4, 0.5, 0.2, "contradicted"),
        (2.0, 0.5, -1.0, "contradicted"),
        (2.0, 0.5, 1.8, "contradicted"),  # also by the paper's own means
        (2.0, 0.5, np.nan, "contradicted"),
        (0.1, 0.3, np.nan, "equivalent within 0.5"),
        (0.1, 0.3, -0.1, "equivalent within 0.5"),
        (0.1, 0.5, np.nan, "not decided at 20 seeds"),
        (-2.0, np.nan, 7.0, "not decided at 20 seeds"),
    ],
)
def test_the_words(mean: float, half_width: float, printed: float, word: str) -> None:
    below = Claim("x", "table1", lambda values: values("a", "b"), printed=printed)
    above = Claim("x", "table1", lambda values: values("a", "b"), below=False, printed=-printed)
    assert Verdict(below, mean, half_width, 20).word == word
    assert Verdict(above, -mean, half_width, 20).word == word
