from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from equifl.aggregators import AGGREGATORS, Aggregator, ByLoss, Memory, QFedAvg, Replies
from equifl.aggregators.base import rule_bytes, weighted_mean
from equifl.testing.aggregator_contract import as_tensors, random_replies

BY_LOSS: dict[str, Callable[[float], Aggregator]] = {
    "loss": ByLoss,
    "q_fedavg": lambda q: QFedAvg(q=q, L=1.0),
    "memory": lambda q: Memory(q=q),
}


def test_replies_of_nobody_or_without_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="clients: 'none' is not allowed; allowed: at least one reply"):
        Replies(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    given: Any = [[1.0, 2.0]]
    for updates, what in ((given, "list"), (np.ones(2), "ndarray"), (np.ones((2, 3)), "ndarray")):
        with pytest.raises(ValueError, match=f"updates: '{what}' is not allowed; allowed: an array with a row"):
            Replies(np.zeros(1, np.int64), updates, np.ones(1), np.ones(1))


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_rule_has_a_default_and_looks_at_what_it_says_it_needs(name: str) -> None:
    """And at nothing else of what is computed or sent only for rules that need it."""
    rule, rng = AGGREGATORS[name](), np.random.default_rng(0)
    assert isinstance(rule, Aggregator)
    (replies,) = random_replies(1, cohort=4)
    step = rule.step(replies, None)[0]
    for key in ("losses", "weights"):
        other: Any = {key: rng.uniform(1, 9, 4)}
        assert np.array_equal(step, rule.step(replace(replies, **other), None)[0]) == (key not in rule.needs), key


def test_the_number_of_clients_is_that_of_the_largest_id_unless_it_is_given() -> None:
    replies = Replies(np.array([3, 1]), np.zeros((2, 1)), np.ones(2), np.ones(2))
    assert replies.n == 4
    assert Replies(np.array([3, 1]), np.zeros((2, 1)), np.ones(2), np.ones(2), 9).n == 9


def test_weights_of_nothing_are_the_mean() -> None:
    rows = np.array([[1.0], [3.0]], np.float32)
    assert weighted_mean(rows, np.zeros(2)).tolist() == [2.0]
    assert weighted_mean(torch.from_numpy(rows), torch.zeros(2)).tolist() == [2.0]


def test_a_rule_that_does_not_say_has_no_bytes() -> None:
    assert rule_bytes(AGGREGATORS["mean"](), 10, 100) == 0
    assert rule_bytes(AGGREGATORS["memory"](), 10, 100) == 4000


def step_of(rule: Aggregator, losses: list[float], *, tensors: bool) -> list[float]:
    """The first step from two replies, with updates e_0 and e_1: how much each counts."""
    updates = np.eye(2, dtype=np.float32)
    replies = Replies(np.arange(2), updates, np.ones(2), np.array(losses), 2)
    found = rule.step(as_tensors(replace(replies, weights=np.ones(2)), torch) if tensors else replies, None)[0]
    return np.asarray(found).tolist()


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("name", BY_LOSS)
def test_no_power_of_losses_is_too_large_or_too_small(name: str, tensors: bool) -> None:
    """10^400 overflows and 10^-450 is 0, but their shares are numbers."""
    for q, losses in ((400.0, [5.0, 10.0]), (30.0, [1e-15, 1e-15]), (400.0, [1e-3, 1e-2]), (2.0, [1.0, 1e300])):
        low, high = step_of(BY_LOSS[name](q), losses, tensors=tensors)
        assert np.isfinite([low, high]).all()
        assert low == high if losses[0] == losses[1] else low < 1e-20 * high
    if name != "q_fedavg":  # of which steps are shorter
        assert step_of(BY_LOSS[name](400.0), [5.0, 10.0], tensors=tensors) == pytest.approx([0.0, 1.0])
        assert step_of(BY_LOSS[name](30.0), [1e-15, 1e-15], tensors=tensors) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("unknown", [np.nan, np.inf])
@pytest.mark.parametrize("name", BY_LOSS)
def test_an_unknown_loss_counts_as_the_mean_of_the_known(name: str, unknown: float, tensors: bool) -> None:
    (given,) = random_replies(1, n=8, cohort=4)
    losses = np.array([1.0, unknown, 2.0, 6.0])
    steps = []
    for values in (losses, np.array([1.0, 3.0, 2.0, 6.0])):
        replies = replace(given, losses=values)
        steps.append(BY_LOSS[name](1.5).step(as_tensors(replies, torch) if tensors else replies, None)[0])
    np.testing.assert_allclose(np.asarray(steps[0]), np.asarray(steps[1]), rtol=1e-5, atol=1e-7)
    replies = replace(given, losses=np.full(4, unknown))
    step = BY_LOSS[name](1.5).step(as_tensors(replies, torch) if tensors else replies, None)[0]
    direction = given.updates.mean(axis=0)
    np.testing.assert_allclose(
        np.asarray(step) @ direction, np.linalg.norm(step) * np.linalg.norm(direction), rtol=1e-5
    )
