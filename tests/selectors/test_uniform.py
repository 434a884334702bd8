import numpy as np

from equifl import Uniform
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True
    unknown_first = False

    def make(self) -> Uniform:
        return Uniform()


def test_everybody_has_the_same_chance_known_or_not() -> None:
    signals = random_signals(10, unknown=4)
    draws = 3000
    counts = np.zeros(10)
    for seed in range(draws):
        counts[Uniform().select(signals, 3, rng=np.random.default_rng(seed))] += 1
    assert np.abs(counts - 0.3 * draws).max() < 5 * np.sqrt(draws * 0.3 * 0.7)
