import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl import Balanced, Selector, Uniform
from equifl.selectors import SELECTORS
from equifl.selectors.base import needs, require_cohort, weights_of
from equifl.signals import OPTIONAL
from equifl.testing import random_signals

ALL: list[Any] = [*(cls() for cls in SELECTORS.values()), Balanced(prefer="loss")]
BY_NAME: dict[str, Any] = {"ids": lambda selector: type(selector).__name__}


@pytest.mark.parametrize("selector", ALL, **BY_NAME)
def test_a_selector_looks_at_nothing_that_it_does_not_say_it_needs(selector: Selector) -> None:
    signals = random_signals(20)
    signals = replace(signals, lengths=signals.norms)
    assert signals.updates is not None
    silent: dict[str, Any] = {"losses": np.full(20, np.nan), "updates": np.full(signals.updates.shape, np.nan)}
    for name, nothing in (silent | dict.fromkeys(OPTIONAL)).items():
        without = replace(signals, **{name: nothing})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            choices = [selector.select(s, 5, rng=np.random.default_rng(0)).tolist() for s in (signals, without)]
        if name not in needs(selector):
            assert choices[0] == choices[1], name
        elif name != "lengths":  # which updates have, too
            assert choices[0] != choices[1], name


def test_a_selector_that_does_not_say_needs_both() -> None:
    assert needs(object()) == {"losses", "updates"}


@pytest.mark.parametrize("choice", [[0], [0, 0], [0, 7], [0, 99], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_what_breaks_the_promise_of_a_selector_is_refused(choice: Any) -> None:
    signals = replace(random_signals(20), available=np.arange(20) != 7)
    with pytest.raises(ValueError, match=r"mine: chose .*; allowed: 2 different ids of available clients"):
        require_cohort(np.array(choice), signals, 2, "mine")
    assert require_cohort([3, 1], signals, 2, "mine").tolist() == [3, 1]  # type: ignore[arg-type]


def test_the_page_of_selectors_has_a_row_for_each_with_what_it_needs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "selectors.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [row[0].strip("| `") for row in rows] == list(SELECTORS)
    for (_, name, _, needed), made in zip(rows, SELECTORS.values(), strict=True):
        assert name.split(",")[0] == f"`{made.__name__}`"
        assert needed.rstrip(" |").split(": ")[-1] == (", ".join(sorted(needs(made()))).replace("_", " ") or "nothing")


class Weighted(Uniform):
    def __init__(self, weights: Any) -> None:
        object.__setattr__(self, "given", weights)

    def weights(self, signals: Any, cohort: Any) -> Any:
        return np.array(self.given)  # type: ignore[attr-defined]


def test_weights_are_equal_where_a_selector_has_none() -> None:
    signals = random_signals(20)
    assert weights_of(Uniform(), signals, np.array([3, 1, 7, 2]), "mine").tolist() == [5.0] * 4
    assert weights_of(Weighted([0, 3]), signals, np.array([3, 1]), "mine").tolist() == [0.0, 3.0]
    assert weights_of(Weighted([]), signals, np.zeros(0, np.int64), "mine").tolist() == []


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0], [0.0, 0.0], ["a", "b"]])
def test_weights_that_no_server_can_use_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"mine: has the weights .*; allowed: 2 finite numbers of 0 or more, one for"):
        weights_of(Weighted(weights), random_signals(20), np.array([3, 1]), "mine")


@pytest.mark.parametrize("selector", ALL, **BY_NAME)
def test_a_seed_is_as_good_as_a_generator(selector: Any) -> None:
    signals = random_signals(20, unknown=3)
    by_seed = selector.select(signals, 6, rng=3)
    assert by_seed.tolist() == selector.select(signals, 6, rng=np.random.default_rng(3)).tolist()
    assert by_seed.tolist() == selector.select(signals, 6, rng=np.int64(3)).tolist()
    assert len(selector.select(signals, 6, rng=None)) == 6
    for wrong in ("0", 0.5, True, -1, np.random.RandomState(0)):
        with pytest.raises(ValueError, match=r"rng: .* is not allowed; allowed: a numpy.random.Generator, a seed"):
            selector.select(signals, 6, rng=wrong)


@pytest.mark.parametrize("selector", ALL, **BY_NAME)
def test_an_array_is_no_signals(selector: Any) -> None:
    with pytest.raises(
        ValueError, match=r"signals: got ndarray; expected equifl.Signals, for example Signals\(updates"
    ):
        selector.select(np.zeros((5, 2)), 2, rng=0)
