from typing import Any

import numpy as np
import pytest

from equifl import PowerOfChoice, Signals
from equifl.experiment.config import Config
from equifl.experiment.names import variant_notes
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True

    def make(self) -> PowerOfChoice:
        return PowerOfChoice()


class TestContractWithAllAsCandidates(SelectorContract):
    def make(self) -> PowerOfChoice:
        return PowerOfChoice(candidates=1000)


def test_takes_the_worst_off_of_those_drawn() -> None:
    signals = random_signals(50)
    everyone = PowerOfChoice(candidates=50).select(signals, 5, rng=np.random.default_rng(0))
    assert everyone.tolist() == np.argsort(-signals.losses)[:5].tolist()


def test_draws_twice_k_by_default_in_proportion_to_size() -> None:
    """With k = 1 and d = 2 of three, sizes 1, 1, 2: the chance that client 0 is drawn, worked by hand."""
    signals = Signals(losses=np.array([9.0, 5.0, 1.0]), sizes=np.array([1.0, 1.0, 2.0]))
    draws = 4000
    chosen = [int(PowerOfChoice().select(signals, 1, rng=np.random.default_rng(s))[0]) for s in range(draws)]
    first = 1 / 4 + 1 / 4 * 1 / 3 + 2 / 4 * 1 / 2  # drawn first; after client 1; after client 2
    assert np.mean(np.array(chosen) == 0) == pytest.approx(first, abs=5 * np.sqrt(first * (1 - first) / draws))
    assert set(chosen) == {0, 1}  # of two drawn, the better off is never taken


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        ([], "Power-of-Choice is its authors' rpow-d: losses are those of each client's last selection."),
        (["signal=gradient"], "Power-of-Choice is its authors' pow-d: losses are fresh."),
        (
            ["signal=gradient", "signal_examples=9"],
            "Power-of-Choice is its authors' cpow-d: losses are fresh, from a part of its examples.",
        ),
        (["selectors={uniform={}}"], None),
    ],
)
def test_a_table_says_which_variant_ran(overrides: list[str], note: str | None) -> None:
    assert variant_notes(Config.load(overrides=overrides).as_dict()) == ([note] if note else [])


def test_ties_go_to_the_lowest_index() -> None:
    signals = Signals(losses=np.ones(6))
    assert PowerOfChoice(candidates=6).select(signals, 3, rng=np.random.default_rng(0)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("candidates", [0, -3, 1.5])
def test_refuses_bad_candidates(candidates: Any) -> None:
    with pytest.raises(ValueError, match=r"candidates: .* allowed: an integer of 1 or more"):
        PowerOfChoice(candidates=candidates)


def test_refuses_fewer_candidates_than_seats() -> None:
    with pytest.raises(ValueError, match="candidates: 3 is not allowed; allowed: at least k, which is 4"):
        PowerOfChoice(candidates=3).select(random_signals(9), 4, rng=np.random.default_rng(0))
