from typing import Any, ClassVar

import numpy as np
import pytest

from equifl.aggregators import ByLoss, Mean, Memory, Momentum, Replies
from equifl.testing import AggregatorContract
from tests.aggregators import oracles


class TestMomentum(AggregatorContract):
    def make(self) -> Momentum:
        return Momentum(beta=0.7)

    @pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
    def test_is_its_equation(self, beta: float) -> None:
        oracles.check(Momentum(beta=beta), oracles.momentum(beta, oracles.mean))


class TestMomentumOfAMemory(AggregatorContract):
    def make(self) -> Momentum:
        return Momentum(beta=0.5, inner=Memory(q=1.0))

    def test_is_its_equation(self) -> None:
        oracles.check(self.make(), oracles.momentum(0.5, oracles.memory(1.0)))


class Counting:
    """A rule whose memory is a tuple: the steps so far, by which it divides."""

    needs: ClassVar[tuple[str, ...]] = ()

    def step(self, replies: Replies, memory: Any) -> tuple[Any, Any]:
        count = 1 if memory is None else int(memory[0]) + 1
        return replies.updates.sum(0) / count, (np.array(count),)


def test_an_inner_rule_with_a_tuple_gets_it_back() -> None:
    replies = Replies(np.array([0]), np.array([[6.0]]), np.ones(1), np.ones(1))
    memory, steps = None, []
    for _ in range(3):
        step, memory = Momentum(beta=0.0, inner=Counting()).step(replies, memory)
        steps.append(step.tolist())
    assert steps == [[6.0], [3.0], [2.0]]


def test_the_step_is_the_callers() -> None:
    """Who scales it in place does not change what the rule remembers."""
    replies = Replies(np.array([0]), np.array([[6.0]]), np.ones(1), np.ones(1))
    step, memory = Momentum(beta=0.5).step(replies, None)
    step *= 0.0
    assert Momentum(beta=0.5).step(replies, memory)[0].tolist() == [9.0]


def test_forgets_what_the_inner_rule_knows_of_a_client() -> None:
    rule, replies = Momentum(beta=0.5, inner=Memory()), Replies(np.arange(2), np.eye(2), np.ones(2), np.ones(2))
    _, memory = rule.step(replies, None)
    memory = rule.forget(memory, np.array([1]))
    assert memory["inner_updates"].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert memory["momentum"].tolist() == [0.5, 0.5]
    _, plain = Momentum().step(replies, None)
    assert Momentum().forget(plain, np.array([1])) == plain


def test_needs_what_the_inner_rule_needs() -> None:
    assert Momentum(inner=ByLoss()).needs == ("losses",)
    assert Momentum().needs == ()


def test_states_the_bytes_of_both() -> None:
    assert Momentum(inner=Mean()).memory_bytes(10, 100) == 400
    assert Momentum(inner=Memory()).memory_bytes(10, 100) == 4400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1.0}, r"beta: 1.0 is not allowed; allowed: from 0 to below 1"),
        ({"inner": 3}, r"inner: 3 is not allowed; allowed: a server rule, with needs and step"),
        ({"inner": Memory(keep="file")}, r"inner: .* is not allowed; allowed: a rule that keeps its memory in memory"),
    ],
)
def test_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Momentum(**options)
