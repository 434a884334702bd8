from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.selectors.sampling import inclusion_probabilities, pivotal


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=1, max_size=12), st.data())
def test_they_sum_to_k_and_are_proportional_below_one(weights: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(weights)))
    given_weights = np.array(weights)
    found = inclusion_probabilities(given_weights, k)
    assert found.sum() == pytest.approx(k)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found[np.argsort(given_weights)]) >= -1e-9).all()
    below = (found < 1) & (given_weights > 0)
    if (given_weights > 0).sum() > k and below.any():
        assert found[below] / given_weights[below] == pytest.approx((found[below] / given_weights[below])[0])


def test_draws_have_their_probabilities_and_no_repeats() -> None:
    chances = np.array([0.3, 0.6, 0.5, 0.0, 0.6, 0.25, 0.75])
    draws = 20000
    counts, rng = np.zeros(7), np.random.default_rng(0)
    for _ in range(draws):
        chosen = pivotal(chances, rng)
        assert len(set(chosen.tolist())) == len(chosen) == 3
        counts[chosen] += 1
    assert np.abs(counts / draws - chances).max() < 5 * np.sqrt(0.25 / draws)


def test_one_is_drawn_of_every_unit_of_the_line() -> None:
    """0.5 0.5 | 0.4 0.6 | 1.0: never two of one unit."""
    chances, rng = np.array([0.5, 0.5, 0.4, 0.6, 1.0]), np.random.default_rng(0)
    for _ in range(100):
        chosen = sorted(pivotal(chances, rng).tolist())
        assert chosen[0] in (0, 1)
        assert chosen[1] in (2, 3)
        assert chosen[2] == 4


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_as_many_as_they_sum_to(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for k in range(n + 1):
        chances = inclusion_probabilities(rng.random(n) ** 4, k)
        assert len(set(pivotal(chances, rng).tolist())) == k


def test_all_pairs_that_may_be_drawn_are() -> None:
    rng = np.random.default_rng(0)
    seen = {tuple(sorted(pivotal(np.full(4, 0.5), rng).tolist())) for _ in range(200)}
    assert seen == set(combinations(range(4), 2)) - {(0, 1), (2, 3)}
