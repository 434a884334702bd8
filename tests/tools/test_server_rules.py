"""The committed runs of server rules: a part is played again, and the page says what they say."""

import json

import pytest

from tools import server_rules
from tools.server_rules import PAGE, RESULTS, RULES, early_losses, table, with_table

COMMITTED = json.loads(RESULTS.read_text())


@pytest.mark.slow
def test_the_first_rounds_of_every_rule_come_out_again() -> None:
    for rule in RULES:
        for name, by_seed in early_losses(rule, [0]).items():
            assert by_seed["0"] == pytest.approx(COMMITTED["early"][rule][name]["0"], rel=1e-3)


def test_the_page_has_the_table_of_the_results() -> None:
    assert with_table(PAGE.read_text(), table(COMMITTED)) == PAGE.read_text()


def test_every_rule_is_there_with_every_selector_and_seed() -> None:
    late = COMMITTED["late"]
    assert list(COMMITTED["early"]) == list(RULES)
    assert {key.partition(" / ")[0] for key in late} == set(RULES)
    assert {key.partition(" / ")[0] for key in late if key.endswith("/ 6")} == set(server_rules.AVERAGED)
    for runs in late.values():
        assert {"uniform", "reshuffle", "rota"} <= set(runs)
        assert all(set(by_seed) == {"0", "1", "2", "3", "4"} for by_seed in runs.values())
