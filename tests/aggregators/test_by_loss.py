from collections.abc import Callable

import numpy as np
import pytest

from equifl.aggregators import ByLoss, Replies
from tests.aggregators.test_base import replies, tensors


@pytest.mark.parametrize("make", [lambda given: given, tensors])
def test_where_nobody_has_a_loss_all_count_the_same(make: Callable[[Replies], Replies]) -> None:
    given = replies()
    without = Replies(given.clients, given.updates, given.sizes, np.zeros(5))
    step, _ = ByLoss().step(make(without), None)
    np.testing.assert_allclose(np.asarray(step), given.updates.mean(axis=0), rtol=1e-5)


def test_refuses_a_negative_power() -> None:
    with pytest.raises(ValueError, match=r"q: -1.0 is not allowed; allowed: 0 or more"):
        ByLoss(q=-1.0)
