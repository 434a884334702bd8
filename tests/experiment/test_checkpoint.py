from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.experiment.checkpoint import read_checkpoint, require_layout, rounds_in, write_checkpoint

LAYOUT: dict[str, Any] = {"models": (np.float32, (2, 3)), "rounds_played": (np.int64, ())}
RIGHT: dict[str, Any] = {"models": np.zeros((2, 3), np.float32), "rounds_played": np.array(4)}


def test_what_was_written_has_the_layout_it_had(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint.npz", RIGHT)
    found = read_checkpoint(tmp_path / "checkpoint.npz")
    assert found is not None
    require_layout(found, LAYOUT)
    assert rounds_in(found, 5) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": None}, "checkpoint: has no `models`"),
        ({"more": np.zeros(1)}, "checkpoint: has `more`, which does not belong there"),
        (
            {"models": np.zeros((2, 4), np.float32)},
            r"`models` is float32 of shape \(2, 4\), expected float32 of shape",
        ),
        ({"models": np.zeros((2, 3))}, r"`models` is float64 of shape \(2, 3\), expected float32 of shape \(2, 3\)"),
        ({"models": np.zeros((2, 3), ">f4")}, r"`models` is >f4 of shape \(2, 3\), expected float32"),
    ],
)
def test_another_layout_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in {**RIGHT, **changes}.items() if array is not None}
    with pytest.raises(ValueError, match=message):
        require_layout(arrays, LAYOUT)


@pytest.mark.parametrize("number", [None, np.array(0), np.array(6), np.array(-1), np.array([4]), np.array(4.0)])
def test_a_number_of_rounds_that_cannot_be_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match=r"checkpoint: .*rounds_played"):
        rounds_in({} if number is None else {"rounds_played": number}, 5)
