from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equifl.aggregators import QFedAvg
from equifl.testing import AggregatorContract, random_replies
from tests.aggregators import oracles


class TestQFedAvg(AggregatorContract):
    linear = False  # the longer the updates, the shorter the step

    def make(self) -> QFedAvg:
        return QFedAvg(q=2.0)

    @pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 3.0])
    def test_is_its_equation(self, q: float) -> None:
        oracles.check(QFedAvg(q=q), oracles.q_fedavg(q, 1 / 0.1))
        oracles.check(QFedAvg(q=q, L=2.0), oracles.q_fedavg(q, 2.0))


def test_without_a_power_it_is_the_mean() -> None:
    for replies in random_replies(4):
        np.testing.assert_allclose(QFedAvg(q=0.0).step(replies, None)[0], replies.updates.mean(axis=0), rtol=1e-5)


def test_a_loss_of_nothing_has_a_step() -> None:
    (replies,) = random_replies(1, cohort=3)
    for q in (0.5, 1.0, 2.0):
        assert np.isfinite(QFedAvg(q=q).step(replace(replies, losses=np.zeros(3)), None)[0]).all()


def test_says_what_it_lacks() -> None:
    (replies,) = random_replies(1)
    with pytest.raises(ValueError, match=r"L: missing; give QFedAvg\(L=...\), or Replies\(lr=...\)"):
        QFedAvg().step(replace(replies, lr=None), None)


@pytest.mark.parametrize("options", [{"q": -1.0}, {"L": 0.0}, {"L": "2"}])
def test_refuses_other_parameters(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: .* is not allowed"):
        QFedAvg(**options)
