from equifl.aggregators import Mean
from equifl.testing import AggregatorContract
from tests.aggregators import oracles


class TestMean(AggregatorContract):
    def make(self) -> Mean:
        return Mean()

    def test_is_its_equation(self) -> None:
        oracles.check(self.make(), oracles.mean)
