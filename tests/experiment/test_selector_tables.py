import json
from typing import Any

import numpy as np
import pytest

from equifl import DivFL, SubTrunc, UnionFL
from equifl.experiment.config import Config
from equifl.experiment.selector_tables import make_selector
from equifl.selectors import SELECTORS


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "unifrom",
            {},
            'selectors.unifrom: unknown selector; did you mean `uniform`?; or say class = "package.module:Name"',
        ),
        (
            "mine",
            {},
            f'selectors.mine: unknown selector; known: {", ".join(SELECTORS)}; or say class = "package.module:Name"',
        ),
        ("mine", {"class": "rotta"}, "selectors.mine.class: unknown selector; did you mean `rota`?; or say class = "),
        (
            "mine",
            {"class": "tests.nowhere:Mine"},
            "selectors.mine.class: 'tests.nowhere:Mine' cannot be found (No module named 'tests.nowhere')",
        ),
        (
            "mine",
            {"class": "tests.own_selector:Yours"},
            "selectors.mine.class: 'tests.own_selector:Yours' cannot be found (module 'tests.own_selector' has no "
            "attribute 'Yours')",
        ),
        ("mine", {"class": ":Mine"}, "selectors.mine.class: ':Mine' cannot be found ("),
        ("mine", {"class": ".own_selector:Mine"}, "selectors.mine.class: '.own_selector:Mine' cannot be found ("),
        (
            "mine",
            {"class": "tests.own_selector:CannotSelect"},
            "selectors.mine.class: 'tests.own_selector:CannotSelect' is not allowed; allowed: a class with "
            "select(signals, k, *, rng)",
        ),
        ("mine", {"class": "math:pi"}, "selectors.mine.class: 'math:pi' is of the standard library, which is not "),
        (
            "mine",
            {"class": "tests.own_selector:NotADataclass"},
            "selectors.mine: NotADataclass.__init__() missing 1 required positional argument: 'share'",
        ),
        (
            "mine",
            {"class": "tests.own_selector:NotADataclass", "part": 1},
            "selectors.mine: NotADataclass.__init__() got an unexpected keyword argument 'part'",
        ),
        (
            "mine",
            {"class": "tests.own_selector:NotADataclass", "share": 2},
            "selectors.mine: nobody has more than all: share is above 1",
        ),
        (
            "unionfl",
            {"inner": "divfl"},
            "selectors.unionfl.inner: 'divfl' is not allowed; allowed: an object, or a table: ",
        ),
        (
            "unionfl",
            {"inner": {"class": "rota"}},
            "selectors.unionfl.inner: Rota() is not allowed; allowed: a selector ",
        ),
        ("unionfl", {"inner": {"sample": 3}}, "selectors.unionfl.inner: unknown selector; known: uniform, "),
        ("unionfl", {"inner": {"class": "divfl", "sample": 0}}, "selectors.unionfl.inner.sample: 0 is not allowed; "),
        ("unionfl", {"inner": {"class": "x.y:Z"}}, "selectors.unionfl.inner.class: 'x.y:Z' cannot be found ("),
    ],
)
def test_a_selector_that_cannot_be_made_is_refused_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make_selector(name, options)
    assert str(refused.value).startswith(message)
    with pytest.raises(ValueError) as also_refused:
        Config(selectors={name: options})
    assert str(also_refused.value) == str(refused.value)


def test_from_python_a_selector_may_be_given_what_no_file_can_say() -> None:
    found = make_selector("subtrunc", {"phi": np.sqrt, "sample": np.int64(3)})
    assert found == SubTrunc(phi=np.sqrt, sample=3)
    assert make_selector("unionfl", {"inner": DivFL(sample=2)}) == UnionFL(inner=DivFL(sample=2))


def test_making_a_selector_changes_nothing_in_its_section() -> None:
    options = {"class": "unionfl", "inner": {"class": "divfl", "sample": 3}}
    before = json.dumps(options)
    make_selector("mine", options)
    assert json.dumps(options) == before
