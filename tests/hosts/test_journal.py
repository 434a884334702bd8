import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import Rota, SubTrunc
from equifl.experiment.records import as_json
from equifl.experiment.run_folder import RunFolder
from equifl.hosts.journal import Journal, model_of_state, model_to_state, options_of
from tests.own_selector import Plain

CONFIG: dict[str, Any] = {
    "rounds": None,
    "clients": None,
    "per_round": 2,
    "seeds": [0],
    "data": {"name": "test"},
    "selectors": {"rota": {}},
}
MODEL: dict[str, Any] = {"b": np.ones(2, np.float32), "a": np.arange(3)}


def journal(path: Path | None, *, resume: bool = False, every: int = 1) -> Journal:
    log = logging.getLogger("test")
    return Journal(path, CONFIG, host="numpy", log=log, resume=resume, checkpoint_every=every)


def row(round: int) -> dict[str, Any]:
    return {"round": round, "selector": "rota", "seed": 0, "cohort": [round, round + 1]} | {
        "local_loss": None,
        "bytes_down": 0,
        "bytes_up": 0,
        "participation": {},
    }


def state(played: int, **others: Any) -> Callable[[], dict[str, Any]]:
    known = {"identities": np.array(["x", "y", "z"]), "rounds_played": np.array(played)}
    return lambda: known | model_to_state(MODEL) | others


def test_a_run_is_resumed_after_its_last_checkpoint(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.write(row(0), state(1))
    first.write(row(1), state(2))
    first.close()
    again = journal(tmp_path, resume=True)
    assert again.past == [[0, 1], [1, 2]]
    assert again.state is not None
    model = model_of_state(again.state)
    assert list(model) == ["b", "a"]
    np.testing.assert_array_equal(model["a"], MODEL["a"])
    again.write(row(2), state(3))
    again.close()
    assert [one["round"] for one in RunFolder(tmp_path).rows()] == [0, 1, 2]
    assert RunFolder(tmp_path).made_with["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"identities": np.arange(3)}, "`identities` is missing, or no list of text"),
        ({"model": np.array(["b", "a", "c"])}, "has no `model.2`"),
    ],
)
def test_a_checkpoint_that_lacks_a_part_is_refused(others: dict[str, Any], message: str, tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.write(row(0), state(1, **others))
    first.close()
    with pytest.raises(ValueError, match=message):
        journal(tmp_path, resume=True)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.write(row(0), state(1))
    first.close()
    with pytest.raises(ValueError, match="holds a run; resume=True continues it"):
        journal(tmp_path)


def test_without_a_folder_nothing_is_kept() -> None:
    one = journal(None)
    one.write(row(0), state(1))
    one.save(state(1))
    assert (one.past, one.state) == ([], None)


def test_rounds_after_the_last_checkpoint_are_made_again(tmp_path: Path) -> None:
    first = journal(tmp_path, every=3)
    for round in range(5):  # checkpoints after rounds 0 and 2
        first.write(row(round), state(round + 1))
    first.close()
    again = journal(tmp_path, resume=True)  # whatever it will do itself
    assert again.past == [[0, 1], [1, 2], [2, 3]]
    assert len(RunFolder(tmp_path).rows()) == 5, "nothing is changed before the first write"
    again.write(row(3), state(4))
    again.close()
    assert [one["round"] for one in RunFolder(tmp_path).rows()] == [0, 1, 2, 3]


def test_a_run_that_ends_is_saved_whole(tmp_path: Path) -> None:
    first = journal(tmp_path, every=10)
    for round in range(3):
        first.write(row(round), state(round + 1))
    first.save(state(3))
    first.save(lambda: {})  # the last round has one already
    first.close()
    assert len(journal(tmp_path, resume=True).past) == 3


def test_a_checkpoint_is_amended_in_part(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.amend({"spent": np.array(0)})  # there is none yet
    assert not (tmp_path / "checkpoint.npz").exists()
    one.write(row(0), state(1, spent=np.array(1)))
    one.amend({"spent": np.array(2)})
    one.close()
    again = journal(tmp_path, resume=True)
    assert again.state is not None
    assert [int(again.state[name]) for name in ("spent", "rounds_played")] == [2, 1]
    assert list(model_of_state(again.state)) == ["b", "a"]


def test_a_run_may_have_a_checkpoint_before_its_first_round(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.begin(state(0, spent=np.array(0)))
    one.amend({"spent": np.array(1)})
    one.close()
    again = journal(tmp_path, resume=True)
    assert again.state is not None
    assert [int(again.state[name]) for name in ("spent", "rounds_played")] == [1, 0]
    assert again.past == []
    again.write(row(0), state(1, spent=np.array(2)))
    again.begin(lambda: {})  # a round was played
    again.close()
    third = journal(tmp_path, resume=True)
    assert third.state is not None
    assert int(third.state["spent"]) == 2
    third.close()
    with pytest.raises(ValueError, match="holds a run"):
        journal(tmp_path)


def test_more_rounds_after_a_checkpoint_than_there_may_be_are_not_dropped(tmp_path: Path) -> None:
    first = journal(tmp_path, every=2)
    for round in range(4):
        first.write(row(round), state(min(round + 1, 1)))
    first.close()
    with pytest.raises(ValueError, match="4 records where the checkpoint has 1; put both files back"):
        journal(tmp_path, resume=True)


def halved(losses: Any) -> Any:
    return 0.5 * losses


def test_options_are_values_that_can_be_compared() -> None:
    assert options_of(Rota()) == options_of(Rota())
    assert options_of(SubTrunc(lam=0.9))["lam"] == 0.9
    assert options_of(SubTrunc(phi=halved))["phi"] == "tests.hosts.test_journal:halved"


def test_a_selector_that_is_no_dataclass_is_compared_by_its_class_and_public_attributes() -> None:
    table = {"class": "tests.own_selector:Plain", "first": 1, "inner": None}
    assert options_of(Plain(1)) == table
    assert options_of(Plain(2, inner=Plain(1)))["inner"] == table


@dataclass
class Holding:
    value: Any

    def select(self, *_: Any, **__: Any) -> Any: ...


def test_what_is_no_plain_value_is_compared_without_its_address() -> None:
    assert options_of(Holding([object()]))["value"] == "[<object object>]"
    assert options_of(Plain(inner=object()))["inner"] == "builtins:object"
    found = ["builtins:object", "tests.hosts.test_journal:halved", "numpy:ndarray", "None"]
    assert options_of(Plain(inner=[object(), halved, np.ones(3), None]))["inner"] == found


@pytest.mark.parametrize("make", [Holding, lambda value: Plain(inner=value)], ids=["dataclass", "plain class"])
def test_options_have_a_form_in_json(make: Any) -> None:
    def option(value: Any) -> Any:
        options = options_of(make(value))
        as_json(options)
        return next(options[key] for key in ("value", "inner") if key in options)

    assert [option(value) for value in (math.inf, -math.inf, math.nan)] == ["inf", "-inf", "nan"]
    names = [f"site {i}" for i in range(9)]
    assert option(set(names)) == option(frozenset(reversed(names))) == names
    assert option(Plain(1)) == options_of(Plain(1))


def test_other_values_within_lists_and_tables_of_a_plain_class_are_noticed() -> None:
    value = {"rates": [0.1, np.float32(0.5)], "of": {3: (math.inf, {"b", "a"})}, "path": Path("x")}
    found = {"rates": [0.1, 0.5], "of": {"3": ["inf", ["a", "b"]]}, "path": "x"}
    assert options_of(Plain(inner=value))["inner"] == found
    assert options_of(Plain(inner=[SubTrunc(lam=0.9)]))["inner"][0]["lam"] == 0.9


@pytest.mark.parametrize("wrapped", [lambda it: it, lambda it: [it], lambda it: {"it": it}, Holding])
@pytest.mark.parametrize("make", [Plain, lambda: Holding(None)], ids=["plain class", "dataclass"])
def test_a_selector_within_itself_is_its_class(make: Any, wrapped: Any) -> None:
    loop = make()
    loop.inner = loop.value = wrapped(loop)
    text = as_json(options_of(loop))
    assert type(loop).__name__ in text
    assert text == as_json(options_of(loop))
