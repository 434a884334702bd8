import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import Rota, SubTrunc
from equifl.experiment.run_folder import RunFolder
from equifl.hosts.journal import Journal, model_of_state, model_to_state, options_of

CONFIG: dict[str, Any] = {
    "rounds": None,
    "clients": None,
    "per_round": 2,
    "seeds": [0],
    "data": {"name": "test"},
    "selectors": {"rota": {}},
}
MODEL: dict[str, Any] = {"b": np.ones(2, np.float32), "a": np.arange(3)}


def journal(path: Path | None, *, resume: bool = False) -> Journal:
    return Journal(path, CONFIG, host="numpy", log=logging.getLogger("test"), resume=resume)


def row(round: int) -> dict[str, Any]:
    return {"round": round, "selector": "rota", "seed": 0, "cohort": [round, round + 1]} | {
        "local_loss": None,
        "bytes_down": 0,
        "bytes_up": 0,
        "participation": {},
    }


def state(played: int, **others: Any) -> dict[str, Any]:
    known = {"identities": np.array(["x", "y", "z"]), "rounds_played": np.array(played)}
    return known | model_to_state(MODEL) | others


def test_a_run_is_resumed_after_its_last_checkpoint(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.write(row(0), state(1))
    first.write(row(1), state(2))
    first.close()
    again = journal(tmp_path, resume=True)
    assert again.cohorts == [[0, 1], [1, 2]]
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


def test_without_a_folder_cohorts_are_kept_in_memory() -> None:
    one = journal(None)
    one.write(row(0), state(1))
    assert one.cohorts == [[0, 1]]
    assert one.state is None


def halved(losses: Any) -> Any:
    return 0.5 * losses


def test_options_are_values_that_can_be_compared() -> None:
    assert options_of(Rota()) == options_of(Rota())
    assert options_of(SubTrunc(lam=0.9))["lam"] == 0.9
    assert options_of(SubTrunc(phi=halved))["phi"] == "tests.hosts.test_journal:halved"
