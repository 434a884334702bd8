import json
import re
from inspect import getdoc

from equifl import SubTrunc, UnionFL
from equifl.paper.tables import DATA
from tools.tuning import MEASURES, OUT, best, selectors, summary

TUNED = json.loads(OUT.read_text())


def test_defaults_are_what_tuning_found_the_most_even() -> None:
    subtrunc, union = SubTrunc(), UnionFL()
    assert best("SubTrunc", TUNED) == f"SubTrunc lam={subtrunc.lam:g} b_factor={subtrunc.b_factor:g}"
    assert best("UnionFL", TUNED) == f"UnionFL mu_factor={union.mu_factor:g}"
    assert union.window == 5  # of the candidates that name none


def test_the_docstring_says_what_was_found() -> None:
    assert all({row["seeds"] for row in TUNED[data].values()} == {20} for data in DATA)
    less = [-TUNED[data][best("SubTrunc", TUNED)]["expected_dissimilarity less DivFL"][0] for data in DATA]
    said = re.search(r"(\d\.\d+) and (\d\.\d+) points less dissimilar than DivFL", getdoc(SubTrunc) or "")
    assert said is not None
    assert [float(number) for number in said.groups()] == less
    pairs = [name for name in selectors() if name.startswith("SubTrunc")]
    assert len(pairs) == 9
    assert len([name for name in selectors() if name.startswith("UnionFL")]) == 7


def test_candidates_are_compared_in_pairs() -> None:
    """With DivFL, rules with Random; a constant difference has no width."""
    seeds = [
        {"DivFL": [50.0 + i, 9.0], "Random": [40.0, 10.0], "SubTrunc x": [52.0 + i, 7.5], "momentum x": [41.0, 9.0]}
        for i in range(3)
    ]
    found = summary(seeds)
    accuracy, even = MEASURES
    assert found["SubTrunc x"][f"{accuracy} less DivFL"] == [2.0, 0.0]
    assert found["SubTrunc x"][f"{even} less DivFL"] == [-1.5, 0.0]
    assert found["momentum x"][f"{even} less Random"] == [-1.0, 0.0]
    assert found["SubTrunc x"][accuracy] == 53.0
