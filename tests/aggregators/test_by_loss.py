from dataclasses import replace

import numpy as np
import pytest
import torch

from equifl.aggregators import ByLoss
from equifl.testing import AggregatorContract, random_replies
from equifl.testing.aggregator_contract import as_tensors
from tests.aggregators import oracles


class TestByLoss(AggregatorContract):
    def make(self) -> ByLoss:
        return ByLoss(q=2.0)

    @pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 2.0])
    def test_is_its_equation(self, q: float) -> None:
        oracles.check(ByLoss(q=q), oracles.by_loss(q))


@pytest.mark.parametrize("tensors", [False, True])
def test_where_nobody_has_a_loss_all_count_the_same(tensors: bool) -> None:
    (given,) = random_replies(1, cohort=4)
    without = replace(given, losses=np.zeros(4))
    step, _ = ByLoss().step(as_tensors(without, torch) if tensors else without, None)
    np.testing.assert_allclose(np.asarray(step), given.updates.mean(axis=0), rtol=1e-5)


def test_refuses_a_negative_power() -> None:
    with pytest.raises(ValueError, match=r"q: -1.0 is not allowed; allowed: 0 or more"):
        ByLoss(q=-1.0)
