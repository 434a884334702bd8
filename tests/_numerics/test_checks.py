from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from equifl._numerics.checks import integer, integers, numbers

DATES = np.array(["2024-01-01", "2024-01-02"], "M8[D]")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2"], "text"),
        ([b"1", b"2"], "text"),
        (np.array(["1", 2.0], object), "str"),
        (DATES, "dates"),
        (DATES - DATES[0], "durations"),
        (np.array([DATES[0], 1.0], object), "datetime64"),
        ([timedelta(1), timedelta(2)], "timedelta"),
        ([1j, 2], "complex"),
        ([None, 1.0], "NoneType"),
        ([True, None], "bool"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
        ([10**400, 1], "too large"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), r"masked array .* .`values.filled\(np.nan\)`"),
        ([np.ma.array([1.0], mask=[True]), [2.0]], "masked array"),
        (np.zeros(2, [("loss", float)]), "records"),
    ],
)
def test_what_is_no_number_is_refused_by_name(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^losses: .*{message}"):
        numbers("losses", values)


def test_numbers_of_any_kind_are_taken() -> None:
    values: Any = [Fraction(1, 2), Decimal("0.25"), 2**70]
    assert numbers("x", values).tolist() == [0.5, 0.25, 2.0**70]
    assert numbers("x", [True, False]).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"x: cannot be read as numbers \(booleans\)"):
        numbers("x", [True, False], booleans=False)


@pytest.mark.parametrize(
    "values",
    [
        [1.5, 2.0],
        [2**63, 1],
        [2**70, 1],
        [10**5000],
        np.array([2**63], np.uint64),
        [1e19, 0.0],
        [-1e19],
        np.array([np.inf], np.float16),
        [np.nan],
        [True, False],
        [True, 2],
        ["1"],
        DATES,
        np.array([], "M8[D]"),
        np.ma.array([1, 2], mask=[True, False]),
        [None],
        [1j],
    ],
    ids=lambda values: f"{type(values).__name__} of {np.asarray(values).dtype}",
)
def test_what_is_no_integer_of_63_bits_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match=r"^ids: .*not allowed"):
        integers("ids", values)


@pytest.mark.parametrize("values", [[], [1, 2], [1.0, 2.0], np.array([2**63 - 1], np.uint64), [-(2**63)], [3, 0.0]])
def test_whole_numbers_of_any_type_are_taken(values: Any) -> None:
    found = integers("ids", values)
    assert found.dtype == np.int64
    assert found.tolist() == [int(value) for value in values]


def test_an_integer_may_have_a_largest() -> None:
    assert integer("round", 7, least=0, most=7) == 7
    with pytest.raises(ValueError, match="round: 8 is not allowed; allowed: an integer of 0 or more, up to 7"):
        integer("round", 8, least=0, most=7)
