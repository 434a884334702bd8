from typing import Any

import numpy as np
import pytest

from equifl import DivFL, Signals
from equifl.maximizers import greedy
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    def make(self) -> DivFL:
        return DivFL()


class TestContractStochastic(SelectorContract):
    random = True

    def make(self) -> DivFL:
        return DivFL(sample=5)


class TestContractStreaming(SelectorContract):
    def make(self) -> DivFL:
        return DivFL(memory_limit=1)


def test_maximises_its_objective_by_greedy() -> None:
    signals = random_signals(50)
    chosen = DivFL().select(signals, 8, rng=np.random.default_rng(0))
    assert chosen.tolist() == greedy(DivFL().objective(signals), 8).tolist()


def test_one_of_each_kind() -> None:
    centres = np.repeat(10 * np.eye(4), 5, axis=0)
    signals = Signals(updates=centres + np.random.default_rng(0).normal(size=centres.shape))
    chosen = DivFL().select(signals, 4, rng=np.random.default_rng(0))
    assert sorted(chosen // 5) == [0, 1, 2, 3]


def test_the_unavailable_are_represented_but_not_chosen() -> None:
    """Of two available clients, the one near the crowd that is offline."""
    updates = np.array([[0.0], [0.1], [-0.1], [0.3], [9.0]])
    signals = Signals(updates=updates, available=np.array([False, False, False, True, True]))
    assert DivFL().select(signals, 1, rng=np.random.default_rng(0)).tolist() == [3]


def test_streaming_chooses_what_the_matrix_does() -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(500, 30)))
    streamed = DivFL(memory_limit=10**5).select(signals, 20, rng=np.random.default_rng(0))
    assert streamed.tolist() == DivFL().select(signals, 20, rng=np.random.default_rng(0)).tolist()


@pytest.mark.parametrize("memory_limit", [1, 2**30])
def test_weights_are_how_many_clients_each_member_represents(memory_limit: int) -> None:
    """Eq. (8), counted client by client; 40 members are more than are looked at together."""
    signals = random_signals(60)
    assert signals.updates is not None
    apart = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
    for k in (1, 5, 40, 60):
        cohort = DivFL().select(signals, k, rng=0)
        gamma = [0] * k
        for client in range(60):
            gamma[min(range(k), key=lambda j: apart[client, cohort[j]])] += 1
        assert DivFL(memory_limit=memory_limit).weights(signals, cohort).tolist() == gamma


def test_a_member_stands_for_itself_even_if_another_has_the_same_update() -> None:
    signals = Signals(updates=np.array([[1.0], [1.0], [1.0], [np.nan], [np.nan], [7.0]]))
    assert DivFL().weights(signals, np.array([1, 0, 5])) == pytest.approx(np.array([2, 1, 1]) * 6 / 4)
    assert DivFL().weights(signals, np.array([3, 1, 0])) == pytest.approx(np.array([1, 3, 1]) * 6 / 5)


def test_says_so_if_nobody_sends_updates() -> None:
    with pytest.warns(UserWarning, match="no client has sent updates yet"):
        DivFL().select(Signals(losses=np.ones(5)), 2, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sample": 0}, "sample: 0 is not allowed; allowed: an integer of 1 or more"),
        ({"sample": 2.0}, "sample: 2.0"),
        ({"scale": "relativ"}, "scale: 'relativ' is not allowed; allowed: 'absolute' or 'relative'"),
        ({"memory_limit": 0}, "memory_limit: 0"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DivFL(**parameters)
