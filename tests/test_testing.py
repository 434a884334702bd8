"""The contract must catch selectors that break it."""

import re
import subprocess
import sys
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


def alike(signals: Signals, k: int, rng: np.random.Generator) -> Ints:
    return np.unique(signals.losses, return_index=True)[1][:k]


def first_of_updates(signals: Signals, k: int, rng: np.random.Generator) -> Ints:
    assert signals.updates is not None, "no updates"
    return np.argsort(signals.updates[:, 0])[:k]


IDS = "select() must return k different ids of available clients; got "
ARRAY = "select() must return a one-dimensional array of integers; got "


@pytest.mark.parametrize(
    ("choice", "attributes", "test", "sentence"),
    [
        (
            lambda s, k, rng: np.arange(k),
            {},
            "test_returns_k_distinct_available_ids",
            "] are not available",
        ),
        (
            lambda s, k, rng: np.repeat(lowest_available(s, 1, rng), k),
            {},
            "test_returns_k_distinct_available_ids",
            " for k = 2 of 40 clients (...): [0] more than once",
        ),
        (
            lambda s, k, rng: lowest_available(s, k + 1, rng),
            {},
            "test_returns_k_distinct_available_ids",
            "for k = 1 of 40 clients (...): 2 ids",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng)[:-1],
            {},
            "test_returns_k_distinct_available_ids",
            f"{IDS}[] for k = 1 of 40 clients (...): 0 ids",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng) + 100,
            {},
            "test_returns_k_distinct_available_ids",
            "for k = 1 of 40 clients (...): [100] are no ids",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng) * 1.0,
            {},
            "test_returns_k_distinct_available_ids",
            f"{ARRAY}array([0.]) (float64) for k = 1 of 40 clients",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng).tolist(),
            {},
            "test_returns_k_distinct_available_ids",
            f"{ARRAY}[0] (list) for k = 1 of 40 clients",
        ),
        (
            lambda s, k, rng: s.losses.nothing,
            {},
            "test_returns_k_distinct_available_ids",
            "select() must not fail for k = 1 of 40 clients (...); it raised AttributeError: ",
        ),
        (
            lambda s, k, rng: uniform(s, k, np.random.default_rng()),
            {},
            "test_is_deterministic_given_the_generator",
            "select() must choose the same clients whenever signals and the state of rng are the same",
        ),
        (with_memory, {}, "test_leaves_no_trace", "select() must not remember earlier calls"),
        (
            lowest_available,
            {"random": True},
            "test_varies_with_the_seed_if_it_is_random",
            "select() must depend on rng, since the contract says random = True; got the same choice from 10 "
            "generators: [0, 1, 2, 3, 4, 5]",
        ),
        (
            uniform,
            {"random": False},
            "test_varies_with_the_seed_if_it_is_random",
            "since the contract says random = False; got 10 different choices from 10 generators",
        ),
        (
            lowest_available,
            {},
            "test_labels_do_not_matter",
            "select() must not depend on how clients are numbered, but for ties; got [0, 1, 2, 3], and [",
        ),
        (
            lowest_available,
            {"random": True, "draws": 50},
            "test_labels_do_not_matter",
            "in 50 of 50 draws, and in 0 when the same clients had other numbers",
        ),
        (
            uniform,
            {},
            "test_unknown_clients_come_first_in_random_order",
            "select() must choose unknown clients first, in random order",
        ),
        (
            lambda s, k, rng: np.argsort(s.knows_loss, kind="stable")[:k],
            {},
            "test_unknown_clients_come_first_in_random_order",
            "select() must choose unknown clients first, in random order",
        ),
        (
            lowest_available,
            {},
            "test_nobody_known_yet",
            "select() must choose at random while no client is known; got the same choice from 10 generators: "
            "[0, 1, 2, 3, 4]",
        ),
        (
            lambda s, k, rng: np.argsort(s.knows_loss, kind="stable")[:k],
            {},
            "test_a_silent_client_is_not_always_selected",
            "select() must not always select an unknown client that never replies; got client ",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng)[1:],
            {},
            "test_takes_everyone_and_warns_if_k_is_more_than_are_available",
            "select() must return all available clients if k is more than there are; got [",
        ),
        (
            lowest_available,
            {},
            "test_takes_everyone_and_warns_if_k_is_more_than_are_available",
            'select() must warn, with the word "available", if k is more than there are (equifl.selectors.',
        ),
        (
            lambda s, k, rng: np.arange(min(k, s.n)),
            {},
            "test_nobody_available",
            "select() must return an empty array if nobody is available; got [0, 1]",
        ),
        (
            lambda s, k, rng: np.arange(k) + 1,
            {},
            "test_one_client",
            "select() must return [0] if there is one client; got [1]",
        ),
        (
            alike,
            {},
            "test_all_clients_alike",
            f"{IDS}[0] for k = 3 of 8 clients (...): 1 ids",
        ),
        (
            first_of_updates,
            {},
            "test_distances_instead_of_updates",
            "select() must not fail for k = 6 of 20 clients (..., with distances instead of updates); it raised "
            "AssertionError: no updates",
        ),
        (
            lambda s, k, rng: lowest_available(s, int(k), rng),
            {},
            "test_refuses_k_below_one",
            "select() must refuse k = 0 with a ValueError that names k; it returned array([], dtype=int64)",
        ),
        (
            lambda s, k, rng: lowest_available(s, k, rng)[[k - 1]],
            {},
            "test_refuses_k_below_one",
            "select() must refuse k = 0 with a ValueError that names k; got IndexError: ",
        ),
    ],
)
def test_a_fault_is_found_and_said_in_a_sentence(
    choice: Choice, attributes: dict[str, object], test: str, sentence: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        getattr(contract(choice, **attributes), test)()
    assert sentence in re.sub(r"\d+ available, \d+ unknown", "...", str(caught.value))


def test_a_fault_is_found_without_assertions() -> None:
    """`python -O` drops assert statements."""
    code = """
import numpy as np
from equifl.testing import SelectorContract

class Contract(SelectorContract):
    def make(self):
        return self
    def select(self, signals, k, *, rng):
        return np.arange(k)

Contract().test_returns_k_distinct_available_ids()
"""
    shown = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert "AssertionError: select() must return k different ids of available clients" in shown.stderr


def test_what_is_no_selector_is_found() -> None:
    made: SelectorContract = type("Contract", (SelectorContract,), {"make": lambda self: object()})()
    with pytest.raises(AssertionError, match=r"must return an object with select\(signals, k, \*, rng\); got <object"):
        made.test_is_a_selector()


def test_every_check_has_been_shown_to_fail() -> None:
    shown = {case[2] for case in test_a_fault_is_found_and_said_in_a_sentence.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    checks = {name for name in dir(SelectorContract) if name.startswith("test_")}
    assert checks - shown == {"test_is_a_selector", "test_weights_if_it_has_any"}  # the latter is shown below


def test_making_nothing_is_explained() -> None:
    with pytest.raises(NotImplementedError, match="must return the selector"):
        SelectorContract().make()


@pytest.mark.parametrize(
    "weights",
    [
        lambda s, cohort: np.ones(len(cohort) + 1),
        lambda s, cohort: -np.ones(len(cohort)),
        lambda s, cohort: np.full(len(cohort), np.nan),
        lambda s, cohort: np.zeros(len(cohort)),
        lambda s, cohort: [1.0] * len(cohort),
    ],
)
def test_weights_of_which_one_is_wrong_are_caught(weights: Callable[[Signals, Ints], Any]) -> None:
    fake = Fake(uniform)
    fake.weights = weights  # type: ignore[attr-defined]
    made = type("Contract", (SelectorContract,), {"make": lambda self: fake})()
    with pytest.raises(AssertionError, match=r"weights\(\) must return an array of one finite number of 0 or more"):
        made.test_weights_if_it_has_any()


def test_weights_that_depend_on_numbers_or_chance_are_caught() -> None:
    for weights in (lambda s, cohort: 1.0 + cohort, lambda s, cohort: np.random.default_rng().random(len(cohort))):
        fake = Fake(uniform)
        fake.weights = weights  # type: ignore[attr-defined]
        made = type("Contract", (SelectorContract,), {"make": lambda self, fake=fake: fake})()
        with pytest.raises(AssertionError, match=r"weights\(\) must follow from signals and cohort alone"):
            made.test_weights_if_it_has_any()
