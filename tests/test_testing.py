"""The contract must catch selectors that break it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from equifl import Signals, Uniform
from equifl.signals import Ints
from equifl.testing import SelectorContract

Choice = Callable[[Signals, int, np.random.Generator], Any]


class Fake:
    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        return self.choice(signals, k, rng)


def contract(choice: Choice, **attributes: object) -> SelectorContract:
    members = {"make": lambda self: Fake(choice)} | attributes
    return type("Contract", (SelectorContract,), members)()


def uniform(signals: Signals, k: int, rng: np.random.Generator) -> Ints:
    return Uniform().select(signals, k, rng=rng)


def lowest_available(signals: Signals, k: int, rng: np.random.Generator) -> Ints:
    return np.flatnonzero(signals.available)[:k]


SEEN: list[int] = []


def with_memory(signals: Signals, k: int, rng: np.random.Generator) -> Ints:
    SEEN.append(k)
    return np.roll(np.flatnonzero(signals.available), len(SEEN))[:k]


@pytest.mark.parametrize(
    ("choice", "attributes", "test"),
    [
        (lambda s, k, rng: np.arange(k), {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: np.zeros(k, int), {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: lowest_available(s, k, rng)[:-1], {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: lowest_available(s, k, rng) + 100, {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: lowest_available(s, k, rng) * 1.0, {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: lowest_available(s, k, rng).tolist(), {}, "test_returns_k_distinct_available_ids"),
        (lambda s, k, rng: uniform(s, k, np.random.default_rng()), {}, "test_is_deterministic_given_the_generator"),
        (with_memory, {}, "test_leaves_no_trace"),
        (lowest_available, {"random": True}, "test_varies_with_the_seed_if_it_is_random"),
        (uniform, {"random": False}, "test_varies_with_the_seed_if_it_is_random"),
        (lowest_available, {}, "test_labels_do_not_matter"),
        (lowest_available, {"random": True}, "test_labels_do_not_matter"),
        (uniform, {}, "test_strangers_come_first_in_random_order"),
        (lowest_available, {}, "test_nobody_heard_yet"),
        (
            lambda s, k, rng: np.argsort(s.knows_loss, kind="stable")[:k],
            {},
            "test_a_silent_stranger_does_not_hold_a_seat",
        ),
        (lowest_available, {}, "test_takes_everyone_and_warns_if_k_is_more_than_are_available"),
        (lambda s, k, rng: np.arange(min(k, s.n)), {}, "test_nobody_available"),
        (lambda s, k, rng: np.arange(k) + 1, {}, "test_one_client"),
        (lambda s, k, rng: np.unique(s.losses, return_index=True)[1][:k], {}, "test_all_clients_alike"),
        (lambda s, k, rng: np.argsort(s.updates[:, 0])[:k], {}, "test_distances_instead_of_updates"),
        (lambda s, k, rng: lowest_available(s, int(k), rng), {}, "test_refuses_k_below_one"),
    ],
)
def test_a_fault_is_found(choice: Choice, attributes: dict[str, object], test: str) -> None:
    with pytest.raises((AssertionError, TypeError)):
        getattr(contract(choice, **attributes), test)()


def test_what_is_no_selector_is_found() -> None:
    made: SelectorContract = type("Contract", (SelectorContract,), {"make": lambda self: object()})()
    with pytest.raises(AssertionError):
        made.test_is_a_selector()


def test_every_check_has_been_shown_to_fail() -> None:
    shown = {case[2] for case in test_a_fault_is_found.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    checks = {name for name in dir(SelectorContract) if name.startswith("test_")}
    assert checks - shown == {"test_is_a_selector"}


def test_making_nothing_is_explained() -> None:
    with pytest.raises(NotImplementedError, match="must return the selector"):
        SelectorContract().make()
