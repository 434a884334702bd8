from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from equifl.aggregators import AGGREGATORS, Aggregator, Replies
from equifl.aggregators.base import rule_bytes, weighted_mean
from equifl.testing.aggregator_contract import random_replies


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
