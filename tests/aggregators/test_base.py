"""Every server rule against its equation, on numpy's arrays and PyTorch's alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from equifl.aggregators import Aggregator, ByLoss, BySize, Mean, Replies

RULES: dict[str, tuple[Aggregator, Callable[[Any, Any], Any]]] = {
    "mean": (Mean(), lambda sizes, losses: np.ones(len(sizes))),
    "by size": (BySize(), lambda sizes, losses: sizes),
    "by loss": (ByLoss(q=2.0), lambda sizes, losses: losses**2.0),
}


def replies(clients: int = 5) -> Replies:
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(clients, 7)).astype(np.float32)
    return Replies(np.arange(clients), updates, rng.integers(1, 50, clients).astype(float), rng.random(clients))


def tensors(given: Replies) -> Replies:
    return Replies(given.clients, *map(torch.from_numpy, (given.updates, given.sizes, given.losses)))


@pytest.mark.parametrize("name", RULES)
def test_is_its_weighted_mean(name: str) -> None:
    rule, weights_of = RULES[name]
    given = replies()
    weights = weights_of(given.sizes, given.losses)
    expected = (weights[:, None] * given.updates).sum(axis=0) / weights.sum()
    step, memory = rule.step(given, None)
    np.testing.assert_allclose(step, expected, rtol=1e-5)
    assert memory is None
    assert isinstance(rule, Aggregator)


@pytest.mark.parametrize("name", RULES)
def test_arrays_and_tensors_are_treated_alike(name: str) -> None:
    rule, given = RULES[name][0], replies()
    ours, theirs = rule.step(given, None)[0], rule.step(tensors(given), None)[0]
    assert isinstance(theirs, torch.Tensor)
    assert ours.dtype == theirs.numpy().dtype == np.float32
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", RULES)
def test_one_reply_is_the_step(name: str) -> None:
    given = replies(1)
    np.testing.assert_array_equal(RULES[name][0].step(given, None)[0], given.updates[0])


def test_says_what_it_looks_at() -> None:
    assert [rule.needs for rule, _ in RULES.values()] == [(), (), ("losses",)]
