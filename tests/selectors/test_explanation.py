from typing import Any

import numpy as np
import pytest

from equifl import DivFL, Signals
from equifl.objectives import SetFunction
from equifl.selectors.explanation import select_and_explain
from equifl.signals import Ints
from equifl.testing import random_signals


def test_the_objective_is_made_once_for_a_cohort_and_its_explanation() -> None:
    made = []

    class Counted(DivFL):
        def objective(self, signals: Signals) -> SetFunction:
            made.append(signals)
            return super().objective(signals)

    signals = random_signals(20)
    cohort, why = select_and_explain(Counted(), signals, 5, rng=np.random.default_rng(0), name="counted")
    assert len(made) == 1
    assert cohort.tolist() == DivFL().select(signals, 5, rng=0).tolist()
    assert why["objective"]["G"] == pytest.approx(DivFL().objective(signals)(cohort))


def test_a_selector_that_chooses_otherwise_than_by_its_objective_is_followed() -> None:
    class Lowest(DivFL):
        def select(self, signals: Signals, k: int, *, rng: Any) -> Ints:
            return np.flatnonzero(signals.available)[:k]

    signals = random_signals(20)
    cohort, why = select_and_explain(Lowest(), signals, 5, rng=np.random.default_rng(0), name="lowest")
    assert cohort.tolist() == [0, 1, 2, 3, 4]
    assert why["objective"]["G"] == pytest.approx(DivFL().objective(signals)(cohort))
