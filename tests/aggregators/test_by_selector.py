from dataclasses import replace

import numpy as np

from equifl.aggregators import BySelector
from equifl.testing import AggregatorContract, random_replies
from tests.aggregators import oracles


class TestBySelector(AggregatorContract):
    linear = False  # one reply has the weight that the selector gives it

    def make(self) -> BySelector:
        return BySelector()

    def test_is_its_equation(self) -> None:
        oracles.check(self.make(), oracles.by_selector)


def test_without_weights_it_is_the_mean() -> None:
    rounds = [replace(replies, weights=None) for replies in random_replies(5)]
    for replies, expected in zip(rounds, oracles.mean(rounds), strict=True):
        np.testing.assert_allclose(BySelector().step(replies, None)[0], expected, rtol=1e-5, atol=1e-7)
