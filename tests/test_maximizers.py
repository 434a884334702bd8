import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equifl import Signals
from equifl.maximizers import greedy, lazy_greedy, random_greedy, stochastic_greedy
from equifl.objectives import FacilityLocation, Modular, SetFunction, Truncated
from equifl.signals import Ints
from tests.strategies import functions, monotone_functions, subsets

ALL: list[Any] = [
    greedy,
    lazy_greedy,
    lambda f, k, **kw: stochastic_greedy(f, k, sample=3, rng=np.random.default_rng(0), **kw),
    lambda f, k, **kw: random_greedy(f, k, rng=np.random.default_rng(0), **kw),
]


def optimum(function: SetFunction, k: int, *, at_most: bool = False) -> float:
    sizes = range(k + 1) if at_most else [k]
    return max(function(list(s)) for m in sizes for s in itertools.combinations(range(function.n), m))


@given(functions(), st.data())
def test_lazy_is_naive(function: SetFunction, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, function.n))
    candidates = data.draw(st.one_of(st.none(), subsets(function.n)))
    expected = greedy(function, k, candidates=candidates)
    assert lazy_greedy(function, k, candidates=candidates).tolist() == expected.tolist()


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([300, 700]), st.booleans())
def test_lazy_is_naive_in_batches(seed: int, n: int, grid: bool) -> None:
    """With so many clients that steps take several batches; on a grid with many ties."""
    rng = np.random.default_rng(seed)
    updates = rng.integers(0, 4, (n, 3)).astype(float) if grid else rng.normal(size=(n, 3))
    losses = rng.exponential(size=n)
    function = FacilityLocation(Signals(updates=updates)) + Truncated(Modular(losses), 20.0) - Modular(losses < 0.3)
    assert lazy_greedy(function, 40).tolist() == greedy(function, 40).tolist()


def test_lazy_asks_for_fewer_gains() -> None:
    asked = {"greedy": 0, "lazy": 0}

    class Counting(FacilityLocation):
        who = "greedy"

        def gains(self, state: Any, candidates: Ints) -> Any:
            asked[self.who] += len(candidates)
            return super().gains(state, candidates)

    function = Counting(Signals(updates=np.random.default_rng(0).normal(size=(1000, 10))))
    greedy(function, 20)
    function.who = "lazy"
    lazy_greedy(function, 20)
    assert asked["lazy"] < asked["greedy"] / 4


@given(monotone_functions(most=7), st.data())
def test_greedy_keeps_its_promise(function: SetFunction, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, function.n))
    assert function(greedy(function, k)) >= (1 - 1 / math.e) * optimum(function, k) - 1e-6


@given(functions(), st.data())
def test_stochastic_greedy_with_everyone_in_the_sample_is_greedy(function: SetFunction, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, function.n))
    chosen = stochastic_greedy(function, k, sample=function.n + 3, rng=np.random.default_rng(0))
    assert chosen.tolist() == greedy(function, k).tolist()


def test_stochastic_greedy_draws_afresh_from_those_not_chosen() -> None:
    drawn: list[list[int]] = []

    class Watched(Modular):
        def gains(self, state: None, candidates: Ints) -> Any:
            drawn.append(candidates.tolist())
            return super().gains(state, candidates)

    chosen = stochastic_greedy(Watched(np.arange(50.0)), 30, sample=7, rng=np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 30
    assert all(len(set(each)) == 7 for each in drawn)
    assert len({tuple(each) for each in drawn}) == 30
    for step, each in enumerate(drawn):
        assert not set(each) & set(chosen[:step].tolist())
        assert chosen[step] == max(each)  # the weights rise with the index


@pytest.mark.parametrize(("n", "k", "sample"), [(300, 100, 30), (300, 40, 2), (40, 40, 5)])
def test_drawing_for_many_steps_at_once_changes_nothing(n: int, k: int, sample: int) -> None:
    signals = Signals(updates=np.random.default_rng(n).normal(size=(n, 6)))
    function, rng, left = FacilityLocation(signals), np.random.default_rng(1), np.arange(n)
    state, expected = function.init(), []
    for size in range(n, n - k, -1):  # the same, one step after the other
        drawn = rng.choice(size, min(sample, size), replace=False, shuffle=False)
        drawn = drawn[np.argsort(left[drawn])]
        best = drawn[int(np.argmax(function.gains(state, left[drawn])))]
        expected.append(int(left[best]))
        state = function.update(state, expected[-1])
        left[best] = left[size - 1]
    ahead = FacilityLocation(signals, memory_limit=4 * n * 150)
    assert stochastic_greedy(ahead, k, sample=sample, rng=np.random.default_rng(1)).tolist() == expected


def test_stochastic_greedy_draws_everyone_equally_often() -> None:
    first = [
        int(stochastic_greedy(Modular(np.ones(10)), 1, sample=1, rng=np.random.default_rng(seed))[0])
        for seed in range(2000)
    ]
    counts = np.bincount(first, minlength=10)
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 0.9)


@settings(max_examples=20)
@given(functions(most=6), st.data())
def test_random_greedy_keeps_its_promise(function: SetFunction, data: st.DataObject) -> None:
    """In expectation: the mean of 200 runs, with five standard errors to spare."""
    k = data.draw(st.integers(1, function.n))
    values = [function(random_greedy(function, k, rng=np.random.default_rng(seed))) for seed in range(200)]
    spare = 5 * np.std(values) / math.sqrt(len(values)) + 1e-6
    assert np.mean(values) >= optimum(function, k, at_most=True) / math.e - spare


def test_random_greedy_adds_nobody_who_lowers_the_value() -> None:
    chosen = [random_greedy(Modular([1.0, -1.0, 0.5, -2.0]), 4, rng=np.random.default_rng(s)) for s in range(50)]
    assert {1, 3}.isdisjoint(np.concatenate(chosen).tolist())
    assert {0, 2} == set(np.concatenate(chosen).tolist())


def test_random_greedy_picks_among_the_k_best() -> None:
    first = {int(random_greedy(Modular([4.0, 3.0, 2.0, 1.0]), 2, rng=np.random.default_rng(s))[0]) for s in range(50)}
    assert first == {0, 1}


@pytest.mark.parametrize("maximizer", ALL)
class TestEveryMaximizer:
    def test_empty(self, maximizer: Any) -> None:
        assert maximizer(Modular([1.0, 2.0]), 0).tolist() == []
        assert maximizer(Modular([1.0, 2.0]), 2, candidates=np.zeros(0, np.int64)).tolist() == []

    def test_full(self, maximizer: Any) -> None:
        chosen = maximizer(Modular([1.0, 2.0]), 5)
        assert len(chosen) == len(set(chosen.tolist())) <= 2
        if maximizer is not ALL[3]:  # random greedy may draw nobody
            assert sorted(chosen.tolist()) == [0, 1]

    def test_stays_within_the_candidates(self, maximizer: Any) -> None:
        chosen = maximizer(Modular(np.arange(1.0, 9.0)), 3, candidates=np.array([6, 1, 4, 3]))
        assert set(chosen.tolist()) <= {1, 3, 4, 6}

    def test_refuses_a_negative_k(self, maximizer: Any) -> None:
        with pytest.raises(ValueError, match="k: -1"):
            maximizer(Modular([1.0]), -1)


def test_ties_go_to_the_lowest_index() -> None:
    even = Modular(np.ones(6))
    order = np.array([5, 3, 1, 4])
    assert greedy(even, 3, candidates=order).tolist() == [1, 3, 4]
    assert lazy_greedy(even, 3, candidates=order).tolist() == [1, 3, 4]
    assert stochastic_greedy(even, 3, sample=4, rng=np.random.default_rng(0), candidates=order).tolist() == [1, 3, 4]
    # Random greedy: of six equals with k = 2, the two best are the two lowest left.
    for seed in range(20):
        chosen = random_greedy(even, 2, rng=np.random.default_rng(seed)).tolist()
        assert set(chosen) <= {0, 1, 2}


def test_always_fills_to_k_even_at_a_loss() -> None:
    assert sorted(lazy_greedy(Modular([-1.0, -2.0, -3.0]), 2).tolist()) == [0, 1]


def test_refuses_an_empty_sample() -> None:
    with pytest.raises(ValueError, match="sample: 0 is not allowed; allowed: an integer of 1 or more"):
        stochastic_greedy(Modular([1.0]), 1, sample=0, rng=np.random.default_rng(0))


class NoNumber(Modular):
    """A function of one's own that went wrong."""

    def gains(self, state: None, candidates: Ints) -> Any:
        return np.where(candidates == 1, np.nan, 1.0)


@pytest.mark.parametrize("maximizer", ALL)
def test_gains_that_are_no_numbers_are_refused_and_do_not_hang(maximizer: Any) -> None:
    with pytest.raises(ValueError, match="gains: nan for element 1"):
        maximizer(NoNumber(np.ones(3)), 2)


@pytest.mark.parametrize("maximizer", ALL)
@pytest.mark.parametrize("candidates", [[-1, 0], [0, 3], [0.5]])
def test_candidates_that_are_no_elements_are_refused(maximizer: Any, candidates: list[float]) -> None:
    with pytest.raises(ValueError, match="candidates: "):
        maximizer(Modular(np.ones(3)), 2, candidates=np.array(candidates))
    assert maximizer(Modular(np.ones(3)), 2, candidates=[]).tolist() == []
