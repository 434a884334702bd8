from itertools import combinations
from typing import Any

import numpy as np
import pytest

from equifl import Balanced, Signals, Uniform
from equifl.signals import Floats
from equifl.testing import SelectorContract, random_signals


class TestContract(SelectorContract):
    random = True
    draws = 200

    def make(self) -> Balanced:
        return Balanced()


class TestContractByLoss(SelectorContract):
    random = True
    draws = 200

    def make(self) -> Balanced:
        return Balanced(prefer="loss")


def imbalance(updates: Floats, cohort: Any) -> float:
    """|sum over members of (u_i - u_mean)|^2; of two halves it is the same."""
    return float(np.square((updates - updates.mean(axis=0))[list(cohort)].sum(axis=0)).sum())


@pytest.mark.parametrize("prefer", ["random", "loss"])
@pytest.mark.parametrize("seed", range(5))
def test_selects_half_of_a_split_that_no_swap_improves(prefer: Any, seed: int) -> None:
    """By all 126 splits of ten clients: no neighbour is better, and it is among the best tenth on average."""
    signals = random_signals(10, seed=seed)
    assert signals.updates is not None
    ranks = []
    for draw in range(10):
        chosen = set(Balanced(prefer=prefer).select(signals, 5, rng=draw).tolist())
        others = set(range(10)) - chosen
        value = imbalance(signals.updates, chosen)
        for mine in chosen:
            for other in others:
                assert imbalance(signals.updates, chosen - {mine} | {other}) >= value * (1 - 1e-5)
        ranks.append(np.mean([imbalance(signals.updates, s) < 0.999 * value for s in combinations(range(10), 5)]))
        if prefer == "loss":
            assert signals.losses[list(chosen)].mean() >= signals.losses[list(others)].mean()
    assert np.mean(ranks) < 0.1


def test_cohorts_are_far_nearer_to_the_mean_than_at_random_and_do_not_rotate() -> None:
    signals = random_signals(60, d=5)
    assert signals.updates is not None
    ours = [Balanced().select(signals, 6, rng=seed) for seed in range(40)]
    random = [Uniform().select(signals, 6, rng=seed) for seed in range(40)]
    assert np.mean([imbalance(signals.updates, s) for s in ours]) < 0.1 * np.mean(
        [imbalance(signals.updates, s) for s in random]
    )
    behind = np.flatnonzero(signals.times_selected == 1)  # about a third, and no more than that of the cohorts
    assert np.isin(np.concatenate(ours), behind).mean() == pytest.approx(len(behind) / 60, abs=0.1)


def test_unknown_losses_do_not_count() -> None:
    """Two balanced pairs: the mean loss of the one whose second loss is unknown is that of its first."""
    updates = np.array([[-2.0], [2.0], [-1.0], [1.0]])
    for losses, pair in (([3.0, np.nan, 2.0, 2.0], [0, 1]), ([np.nan, np.nan, 0.0, 0.0], [2, 3])):
        signals = Signals(updates=updates, losses=np.array(losses))
        chosen = Balanced(prefer="loss").select(signals, 2, rng=0)
        assert sorted(chosen.tolist()) == pair


def test_says_so_if_nobody_sends_losses() -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(12, 3)))
    with pytest.warns(UserWarning, match="no client has sent losses yet, .*: it selected a balanced group at random"):
        assert len(Balanced(prefer="loss").select(signals, 3, rng=0)) == 3


def test_large_cohorts_are_made_of_several_splits() -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(3000, 3)))
    assert len(set(Balanced().select(signals, 300, rng=0).tolist())) == 300


@pytest.mark.parametrize(("n", "divides"), [(10, True), (11, False)])
def test_participation_is_equal_only_where_k_divides(n: int, divides: bool) -> None:
    updates = np.random.default_rng(0).normal(size=(n, 8))
    updates[:2] *= 8
    rng = np.random.default_rng(1)
    cohorts = [Balanced().select(Signals(updates=updates), 5, rng=rng) for _ in range(200)]
    counts = np.bincount(np.concatenate(cohorts), minlength=n)
    assert counts.min() > 70 if divides else counts.min() == 0, counts  # 100 each, give or take 7


def test_needs_losses_only_if_it_prefers_them() -> None:
    assert set(Balanced().needs) == {"updates"}
    assert set(Balanced(prefer="loss").needs) == {"updates", "losses"}


def test_refuses_an_unknown_preference() -> None:
    with pytest.raises(ValueError, match="prefer: 'losses' is not allowed; allowed: 'random' or 'loss'"):
        Balanced(prefer="losses")  # type: ignore[arg-type]
