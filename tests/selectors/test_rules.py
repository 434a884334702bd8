import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equifl import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.selectors.rules import needs, require_cohort
from equifl.testing import made_up_signals

ALL: list[Any] = [Uniform(), PowerOfChoice(), DivFL(), SubTrunc(), UnionFL(), Rota()]


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_a_selector_looks_at_nothing_that_it_does_not_say_it_needs(selector: Selector) -> None:
    signals = made_up_signals(20)
    assert signals.updates is not None
    silent: dict[str, dict[str, Any]] = {
        "losses": {"losses": np.full(20, np.nan)},
        "updates": {"updates": np.full(signals.updates.shape, np.nan)},
    }
    fields = {
        name: getattr(signals, name) for name in ("losses", "updates", "last_selected", "times_selected", "sizes")
    }
    for name, nothing in silent.items():
        without = type(signals)(**(fields | nothing), round=9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            choices = [selector.select(s, 5, rng=np.random.default_rng(0)).tolist() for s in (signals, without)]
        assert (choices[0] == choices[1]) == (name not in needs(selector))


def test_a_selector_that_does_not_say_needs_both() -> None:
    assert needs(object()) == {"losses", "updates"}


@pytest.mark.parametrize("choice", [[0], [0, 0], [0, 7], [0, 99], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_what_breaks_the_promise_of_a_selector_is_refused(choice: Any) -> None:
    signals = replace(made_up_signals(20), available=np.arange(20) != 7)
    with pytest.raises(ValueError, match=r"mine: chose .*; allowed: 2 different ids of available clients"):
        require_cohort(np.array(choice), signals, 2, "mine")
    assert require_cohort([3, 1], signals, 2, "mine").tolist() == [3, 1]  # type: ignore[arg-type]
