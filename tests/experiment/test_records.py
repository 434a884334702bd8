import json
from typing import Any

import pytest

from equifl.experiment.records import check_stored, read_record, record_keys, record_line, sealed, unsealed
from tests.report.example_records import MADE_WITH, configuration, records

CONFIG = configuration()
EVALUATED = next(record for record in records(CONFIG) if "accuracy" in record)


def test_what_is_sealed_comes_back_and_nothing_else_does() -> None:
    line = sealed('{"a": [1, "ü"]}')
    assert unsealed(line, required=True) == {"a": [1, "ü"]}
    assert json.loads(line).keys() == {"a", "crc"}  # and anybody's reader reads it
    for wrong in (line.replace(b"1", b"2"), line[:-3] + b"9}\n", line[1:]):
        with pytest.raises(ValueError, match=r"checksum|line 1"):
            unsealed(wrong, required=True)
    with pytest.raises(ValueError, match="it has no checksum"):
        unsealed(b'{"a": 1}\n', required=True)
    assert unsealed(b'{"a": 1}\n', required=False) == {"a": 1}  # as earlier versions wrote it


def test_records_are_in_the_order_of_rounds_selectors_and_seeds() -> None:
    found = [(record["round"], record["selector"], record["seed"]) for record in records(CONFIG)]
    assert list(record_keys(CONFIG)) == found
    live = record_keys(CONFIG | {"rounds": None, "seeds": [7], "selectors": {"rota": {}}})
    assert [next(live) for _ in range(3)] == [(0, "rota", 7), (1, "rota", 7), (2, "rota", 7)]


def test_every_record_of_a_run_is_right() -> None:
    for key, record in zip(record_keys(CONFIG), records(CONFIG), strict=True):
        assert read_record(record_line(record), key, CONFIG, required=True) == record


MISSING = object()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("round", True, "`round` is True, expected an integer of 0 or more"),
        ("seed", MISSING, "no `seed`"),
        ("selector", ["rota"], r"`selector` is \['rota'\], expected text"),
        ("cohort", MISSING, "no `cohort`"),
        ("cohort", [1, 1], "expected a list of different clients"),
        ("cohort", [20], "`cohort` has client 20 of 20"),
        ("cohort", [10**30], "expected a list of different clients"),
        ("cohort", {"1": 2}, "expected a list of different clients"),
        ("local_loss", "1.0", "`local_loss` is '1.0', expected a number"),
        ("local_loss", 10**400, "expected a number"),
        ("bytes_up", 0.5, "`bytes_up` is 0.5, expected an integer of 0 or more"),
        ("accuracy", MISSING, "it has no `accuracy`"),
        ("accuracy", None, "`accuracy` is None, expected a number from 0 to 100"),
        ("worst10", 1e9, "`worst10` is 1000000000.0, expected a number from 0 to 100"),
        ("client_accuracy", [50.0] * 19, "`client_accuracy` has 19 numbers for 20 clients"),
        ("client_accuracy", [None] * 20, "expected a list of numbers from 0 to 100"),
        ("client_accuracy", [[50.0]] * 20, "expected a list of numbers from 0 to 100"),
        ("participation", {"jain": 1.0}, "expected a table of numbers with `gini`"),
        ("objective", {"G": "much"}, "expected a table of numbers"),
        ("saturated_at", -1, "`saturated_at` is -1, expected"),
    ],
)
def test_a_field_that_is_wrong_is_named(field: str, value: Any, message: str) -> None:
    record = {name: given for name, given in EVALUATED.items() if name != field}
    record |= {} if value is MISSING else {field: value}
    key = EVALUATED["round"], EVALUATED["selector"], EVALUATED["seed"]
    with pytest.raises(ValueError, match=rf"^is damaged \(.*{message}"):
        read_record(sealed(json.dumps(record)), key, CONFIG, required=True)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_nan_and_infinity_are_no_numbers(text: str) -> None:
    line = json.dumps(EVALUATED | {"local_loss": 0.125}).replace("0.125", text)
    key = EVALUATED["round"], EVALUATED["selector"], EVALUATED["seed"]
    with pytest.raises(ValueError, match=r"is no number|expected a number"):
        read_record(sealed(line), key, CONFIG, required=True)


def test_an_evaluation_that_was_not_due_is_noticed() -> None:
    record = EVALUATED | {"round": 0}
    key = 0, record["selector"], record["seed"]
    with pytest.raises(ValueError, match="it has an `accuracy`, and no evaluation was due"):
        read_record(record_line(record), key, CONFIG, required=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rounds", 0, "`rounds` is 0, expected an integer of 1 or more"),
        ("clients", MISSING, "no `clients`"),
        ("seeds", [], "expected a list of different integers, at least one"),
        ("seeds", [0, 0], "expected a list of different integers"),
        ("selectors", ["rota"], "expected a table of tables"),
        ("selectors", {"rota": None}, "expected a table of tables"),
        ("data", "digits", "`data` is 'digits', expected a table"),
        ("data", {}, "no `name`"),
        ("data", {"name": "digits", "partition": 3}, "`partition` is 3, expected a table"),
        ("engine", [], r"`engine` is \[\], expected text"),
        ("evaluate_every", 0, "`evaluate_every` is 0"),
        ("per_round", [3, None], r"`per_round\[1\]` is None"),
        ("train", {"lr": float("inf")}, r"`train\.lr` is inf"),
    ],
)
def test_a_setting_that_is_wrong_is_named(key: str, value: Any, message: str) -> None:
    config = {name: given for name, given in CONFIG.items() if name != key} | (
        {} if value is MISSING else {key: value}
    )
    check_stored({"config": configuration(), "made_with": MADE_WITH}, 2)
    with pytest.raises(ValueError, match=message):
        check_stored({"config": config, "made_with": MADE_WITH}, 2)
    with pytest.raises(ValueError, match="`format` is 3, expected 2, which this version can read"):
        check_stored({"config": configuration(), "made_with": MADE_WITH, "format": 3}, 2)
