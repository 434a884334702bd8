import numpy as np
import torch

from equifl.aggregators import AGGREGATORS, Aggregator, Replies
from equifl.aggregators.base import rule_bytes, weighted_mean


def test_every_rule_has_a_default_and_says_what_it_looks_at() -> None:
    needs = {name: rule().needs for name, rule in AGGREGATORS.items()}
    assert all(isinstance(rule(), Aggregator) for rule in AGGREGATORS.values())
    assert needs == {
        "mean": (),
        "size": (),
        "loss": ("losses",),
        "q_fedavg": ("losses",),
        "momentum": (),
        "memory": (),
        "selector": ("weights",),
    }


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
