from equifl.aggregators import BySize
from equifl.testing import AggregatorContract
from tests.aggregators import oracles


class TestBySize(AggregatorContract):
    def make(self) -> BySize:
        return BySize()

    def test_is_its_equation(self) -> None:
        oracles.check(self.make(), oracles.by_size)
