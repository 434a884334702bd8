from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equifl.aggregators import Memory, Replies
from equifl.testing import AggregatorContract, random_replies
from tests.aggregators import oracles


class TestMemory(AggregatorContract):
    def make(self) -> Memory:
        return Memory()

    @pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 3.0])
    def test_is_its_equation(self, q: float) -> None:
        oracles.check(Memory(q=q), oracles.memory(q), tolerance=2e-5)


class TestMemoryByLoss(AggregatorContract):
    def make(self) -> Memory:
        return Memory(q=2.0)


class TestMemoryInHalfPrecision(AggregatorContract):
    def make(self) -> Memory:
        return Memory(q=1.0, keep="float16")

    def test_is_its_equation_to_three_digits(self) -> None:
        oracles.check(self.make(), oracles.memory(1.0), tolerance=5e-3)


class TestMemoryInAFile(AggregatorContract):
    in_file = True

    def make(self) -> Memory:
        return Memory(q=1.0, keep="file")

    def test_is_its_equation(self) -> None:
        oracles.check(self.make(), oracles.memory(1.0), tolerance=2e-5)


@pytest.mark.parametrize("keep", ["whole", "float16"])
@pytest.mark.parametrize("q", [0.0, 2.0])
def test_an_id_that_is_free_again_counts_for_nobody(q: float, keep: str) -> None:
    """Client 2 goes and 3 stays: as if 3 had been 2, of 4 clients from the beginning."""
    rule, (first, second) = Memory(q=q, keep=keep), random_replies(2, n=5, cohort=3)
    gone = rule.step(replace(first, clients=np.array([0, 3, 2])), None)[1]
    gone = rule.forget(gone, np.array([2]))
    two = {name: getattr(first, name)[:2] for name in ("updates", "sizes", "losses", "weights")}
    kept = rule.step(replace(first, **two, clients=np.array([0, 2]), population=4), None)[1]
    mine = rule.step(replace(second, clients=np.array([3, 1, 4]), free=1), gone)[0]
    theirs = rule.step(replace(second, clients=np.array([2, 1, 3]), population=4), kept)[0]
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_without_everybody_it_is_the_mean_and_with_everybody_each_time_too() -> None:
    """FedVARP at full participation is FedAvg: the memory cancels out."""
    rng, memory = np.random.default_rng(0), None
    for _ in range(4):
        updates = rng.normal(size=(5, 3))
        replies = Replies(rng.permutation(5), updates, np.ones(5), np.ones(5), 5)
        step, memory = Memory().step(replies, memory)
        np.testing.assert_allclose(step, updates.mean(axis=0), atol=1e-12)


def test_is_unbiased_over_cohorts() -> None:
    """The mean step over all cohorts of one client is that of full participation, whatever the memory: q = 0 and 1."""
    rng = np.random.default_rng(3)
    updates, losses = rng.normal(size=(4, 3)), rng.exponential(size=4)
    for q in (0.0, 1.0):
        before = Memory(q=q).step(Replies(np.arange(4), rng.normal(size=(4, 3)), np.ones(4), losses, 4), None)[1]
        steps = []
        for i in range(4):
            memory = {name: part.copy() for name, part in before.items()}
            replies = Replies(np.array([i]), updates[[i]], np.ones(1), losses[[i]], 4)
            steps.append(Memory(q=q).step(replies, memory)[0])
        expected = losses**q @ updates / (losses**q).sum()
        np.testing.assert_allclose(np.mean(steps, axis=0), expected, atol=1e-9)


def test_clients_may_join() -> None:
    rounds = random_replies(8, n=6)
    few = [replies for replies in rounds if replies.clients.max() < 4][:1] or [rounds[0]]
    joined = [*(replace(replies, population=6) for replies in few), *rounds[1:]]
    for keep in ("whole", "float16"):
        memory: Any = None
        _, memory = Memory(q=1.0, keep=keep).step(replace(few[0], population=int(few[0].clients.max()) + 1), memory)
        step, memory = Memory(q=1.0, keep=keep).step(joined[1], memory)
        assert len(memory["updates"]) == len(memory["losses"]) == 6
        assert np.isfinite(step).all()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_half_precision_keeps_updates_of_any_length(scale: float) -> None:
    rounds = random_replies(6)
    scaled = [replace(replies, updates=replies.updates * np.float32(scale)) for replies in rounds]
    whole: Any = None
    half: Any = None
    for replies in scaled:
        expected, whole = Memory().step(replies, whole)
        step, half = Memory(keep="float16").step(replies, half)
        np.testing.assert_allclose(step, expected, atol=2e-3 * scale)


def test_losses_of_nothing_are_equal_shares() -> None:
    rounds = [replace(replies, losses=np.zeros(len(replies.clients))) for replies in random_replies(4)]
    by_loss: Any = None
    plain: Any = None
    for replies in rounds:
        step, by_loss = Memory(q=2.0).step(replies, by_loss)
        expected, plain = Memory().step(replies, plain)
        np.testing.assert_allclose(step, expected, rtol=1e-4, atol=1e-6)


def test_an_unknown_loss_does_not_replace_the_last_known_one() -> None:
    """Of client 0, which replies twice: what is known of it stays."""
    updates = np.eye(2)
    memory: Any = None
    for losses in ([1.0, 3.0], [np.nan, 3.0]):
        step, memory = Memory(q=1.0).step(Replies(np.arange(2), updates, np.ones(2), np.array(losses), 2), memory)
        assert step == pytest.approx([0.25, 0.75])
    assert memory["losses"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_a_client_beyond_the_population_is_refused(q: float) -> None:
    replies = Replies(np.array([1, 7]), np.eye(2), np.ones(2), np.ones(2), 4)
    with pytest.raises(ValueError, match=r"clients: 7 is not allowed; allowed: ids below 4, or Replies\(population="):
        Memory(q=q).step(replies, None)


def test_a_negative_client_is_refused() -> None:
    replies = Replies(np.array([-1, 2]), np.eye(2), np.ones(2), np.ones(2), 4)
    with pytest.raises(ValueError, match=r"clients: -1 is not allowed; allowed: ids from 0 on"):
        Memory().step(replies, None)


@pytest.mark.parametrize("keep", ["whole", "float16", "file"])
def test_a_client_that_is_forgotten_is_as_one_that_never_replied(keep: str) -> None:
    first, later = random_replies(2, n=8, d=5, cohort=4)
    someone, rule = first.clients[:1], Memory(q=1.0, keep=keep)
    kept = [i for i in range(4) if first.clients[i] != someone[0]]
    names = ("clients", "updates", "sizes", "losses", "weights")
    others = replace(first, **{name: getattr(first, name)[kept] for name in names})
    later = replace(later, clients=np.setdiff1d(np.arange(8), someone)[:4])
    _, memory = rule.step(first, None)
    _, expected = rule.step(others, None)
    memory = rule.forget(memory, np.array([*someone, 8]))  # 8 is beyond what it remembers
    np.testing.assert_allclose(rule.step(later, memory)[0], rule.step(later, expected)[0], rtol=1e-5, atol=1e-6)


def test_losses_below_0_count_as_0() -> None:
    replies = Replies(np.arange(3), np.eye(3), np.ones(3), np.array([-1.0, 1.0, 3.0]), 3)
    for q in (0.5, 1.0):
        step, _ = Memory(q=q).step(replies, None)
        assert step == pytest.approx(np.array([0.0, 1.0, 3.0**q]) / (1 + 3.0**q), abs=1e-5)


def test_states_its_bytes() -> None:
    replies = random_replies(1, n=8, d=1000)[0]
    for keep in ("whole", "float16"):
        for q in (0.0, 1.0):
            rule = Memory(q=q, keep=keep)
            _, memory = rule.step(replies, None)
            assert sum(part.nbytes for part in memory.values()) == rule.memory_bytes(8, 1000)
    rule = Memory(keep="file")
    _, memory = rule.step(replies, None)
    assert memory["updates"].nbytes == rule.file_bytes(8, 1000) == 64000
    assert Memory().file_bytes(8, 1000) == 0


def test_needs_losses_only_as_weights() -> None:
    assert Memory().needs == ()
    assert Memory(q=0.5).needs == ("losses",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": -0.5}, r"q: -0.5 is not allowed; allowed: 0 or more"),
        ({"keep": "disk"}, r"keep: 'disk' is not known; .*allowed: whole, float16, file"),
    ],
)
def test_refuses_other_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Memory(**options)
