from itertools import permutations
from typing import Any

import numpy as np
import pytest

from equifl import Signals
from equifl.selectors import ActiveFL
from equifl.testing import SelectorContract


class TestContract(SelectorContract):
    random = True

    def make(self) -> ActiveFL:
        return ActiveFL()


class TestContractByValueAlone(SelectorContract):
    random = True

    def make(self) -> ActiveFL:
        return ActiveFL(alpha1=0.0, alpha2=1.0, alpha3=0.0)


LOSSES, SIZES = np.array([0.2, 2.0, 1.0, 0.1, 0.7]), np.array([4.0, 1.0, 9.0, 16.0, 1.0])


def chances(alpha1: float, alpha2: float, alpha3: float, k: int) -> np.typing.NDArray[np.float64]:
    """(N,) of selection, by all orders in which clients may be drawn, one after the other."""
    v = np.sqrt(SIZES) * LOSSES
    allowed = np.argsort(v)[int(alpha1 * len(v)) :]
    first = max(int((1 - alpha3) * k), int(alpha3 < 1))
    found = np.zeros(len(v))
    for order in permutations(range(len(v)), k):
        chance, gone = 1.0, set[int]()
        for place, client in enumerate(order):
            pool = [i for i in (allowed if place < first else range(len(v))) if i not in gone]
            weight = {i: np.exp(alpha2 * v[i]) if place < first else 1.0 for i in pool}
            chance *= weight.get(client, 0.0) / sum(weight.values())
            gone.add(client)
        found[list(order)] += chance
    return found


@pytest.mark.parametrize("parameters", [(0.0, 1.0, 0.0), (0.4, 2.0, 0.0), (0.4, 0.5, 0.5), (0.0, 0.0, 1.0)])
def test_clients_are_drawn_by_the_rule(parameters: tuple[float, float, float]) -> None:
    alpha1, alpha2, alpha3 = parameters
    signals, draws, counts = Signals(losses=LOSSES, sizes=SIZES), 2000, np.zeros(5)
    selector = ActiveFL(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3)
    for seed in range(draws):
        counts[selector.select(signals, 2, rng=seed)] += 1
    assert counts / draws == pytest.approx(chances(alpha1, alpha2, alpha3, 2), abs=5 * np.sqrt(0.25 / draws))


def test_the_share_alpha1_with_the_smallest_values_is_excluded() -> None:
    """As in the paper; some public codes keep that share."""
    signals = Signals(losses=np.arange(100.0))
    chosen = np.concatenate([ActiveFL(alpha3=0.0).select(signals, 10, rng=seed) for seed in range(50)])
    assert chosen.min() == 75


def test_a_tenth_is_drawn_from_all() -> None:
    signals = Signals(losses=np.arange(100.0))
    low = [int((ActiveFL().select(signals, 10, rng=seed) < 75).sum()) for seed in range(200)]
    assert max(low) == 1
    assert np.mean(low) == pytest.approx(75 / 91, abs=0.15)


def test_a_cohort_of_one_is_drawn_by_its_value() -> None:
    """(1 - alpha3) k, rounded down, would be nobody."""
    signals = Signals(losses=np.array([1e4, *np.zeros(19)]))
    assert all(ActiveFL().select(signals, 1, rng=seed).tolist() == [0] for seed in range(20))


def test_so_many_are_not_excluded_that_places_stay_empty() -> None:
    assert len(ActiveFL(alpha1=1.0).select(Signals(losses=np.arange(9.0)), 7, rng=0)) == 7


def test_huge_losses_do_not_overflow() -> None:
    signals = Signals(losses=np.array([1e300, 1e200, 1.0, 2.0, 3.0]))
    assert ActiveFL(alpha1=0.0, alpha3=0.0).select(signals, 2, rng=0).tolist() == [0, 1]


@pytest.mark.parametrize(("name", "value"), [("alpha1", 1.5), ("alpha2", -1.0), ("alpha3", -0.1), ("alpha3", "x")])
def test_refuses_bad_parameters(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name}: .* is not allowed"):
        ActiveFL(**{name: value})
