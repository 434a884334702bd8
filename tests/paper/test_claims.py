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


def test_the_other_way_round_it_does_not_hold() -> None:
    results = made_up()
    for seed in range(8):
        results["unionfl_5"][seed]["dissimilarity"] += 1 + 0.1 * (seed % 2)
    assert verdict("UnionFL is less dissimilar than Random", results).word == "does not hold"


def test_what_the_interval_does_not_decide_is_not_decided() -> None:
    results = made_up()
    for seed in range(8):
        results["subtrunc_0.95"][seed]["dissimilarity"] += (-1) ** seed
    assert verdict("SubTrunc is less dissimilar than DivFL", results).word == "not decided at 8 seeds"


def test_no_difference_at_all_is_not_decided() -> None:
    assert verdict("identity is less dissimilar", made_up()).word == "not decided at 8 seeds"


def test_a_trend_is_a_slope_over_the_settings_in_order() -> None:
    results = made_up()
    for step, window in enumerate((2, 5, 10)):
        for seed in range(8):
            results[f"unionfl_{window}"][seed]["accuracy"] += 2 * step + 0.01 * (seed % 2) * step
    found = verdict("accuracy grows with the window", results)
    assert found.mean == pytest.approx(2.005)
    assert found.word == "holds"
    assert verdict("dissimilarity falls as the window grows", results).word == "not decided at 8 seeds"


def test_which_side_counts() -> None:
    above = Claim("x", "table1", lambda values: values("a", "b"), below=False)
    assert Verdict(above, 1.0, 0.5, 3).word == "holds"
    assert Verdict(above, -1.0, 0.5, 3).word == "does not hold"
    assert Verdict(above, 0.3, 0.5, 3).word == "not decided at 3 seeds"
    assert Verdict(above, 0.3, float("nan"), 1).word == "not decided at one seed"
    assert Verdict(above, 0.3, 0.5, 3).outcome == "not decided"
