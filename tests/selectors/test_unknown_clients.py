import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equifl import Balanced, DivFL, PowerOfChoice, Rota, Selector, Signals, SignalStore, SubTrunc, UnionFL
from equifl.selectors import SELECTORS
from equifl.selectors.base import needs
from equifl.testing import random_signals

INFORMED: list[Any] = [PowerOfChoice(), DivFL(), SubTrunc(), UnionFL(), Rota()]
EVERY = [*(make() for make in SELECTORS.values()), Balanced(prefer="loss"), UnionFL(inner=SubTrunc())]
MISSING = [(selector, name) for selector in EVERY for name in sorted(needs(selector))]
BY_NAME: dict[str, Any] = {"ids": lambda selector: type(selector).__name__}


@pytest.mark.parametrize("selector", INFORMED, **BY_NAME)
def test_clients_under_new_names_get_their_share_of_the_seats(selector: Selector) -> None:
    """Five that come back under new names every round, among 100 known ones: as if they were always the same five."""
    rng = np.random.default_rng(0)
    store = SignalStore(100)
    store.observe(np.arange(100), updates=rng.normal(size=(100, 3)), losses=rng.random(100))
    taken = 0
    for round in range(31):
        available = np.zeros(len(store) + 5 * (round > 0), bool)
        available[:100] = available[len(store) :] = True
        store.grow(len(available))
        cohort = selector.select(store.signals(round, available=available), 10, rng=rng)
        store.observe(cohort, round=round, updates=rng.normal(size=(10, 3)), losses=rng.random(10))
        taken += int((cohort >= 100).sum())
    assert taken == 30  # 10 * 5 / 105 is less than one seat a round, rounded up


@pytest.mark.parametrize("selector", INFORMED, **BY_NAME)
def test_those_who_wait_fill_the_seats_that_nobody_else_can_take(selector: Selector) -> None:
    """Two are known; the others were asked in round 8, four of them for the first time."""
    signals = random_signals(10, unknown=8)
    known, unknown = np.flatnonzero(signals.knows_loss), np.flatnonzero(~signals.knows_loss)
    times, last = signals.times_selected.copy(), signals.last_selected.copy()
    times[unknown], last[unknown] = [1, 1, 1, 1, 2, 2, 2, 2], 8
    cohort = selector.select(
        replace(signals, times_selected=times, last_selected=last), 6, rng=np.random.default_rng(0)
    )
    assert set(cohort.tolist()) == {*known.tolist(), *unknown[:4].tolist()}


@pytest.mark.parametrize("selector", INFORMED, **BY_NAME)
def test_who_was_there_from_the_start_and_is_unknown_goes_first(selector: Selector) -> None:
    signals = random_signals(30, unknown=10)
    unknown = np.flatnonzero(~signals.knows_loss)
    joined = np.zeros(30, np.int64)
    joined[unknown[:4]] = 3
    cohort = selector.select(replace(signals, joined=joined), 8, rng=np.random.default_rng(0))
    assert set(cohort.tolist()) >= set(unknown[4:].tolist())
    assert np.isin(cohort, unknown[:4]).sum() == 2  # of 8 seats, 8 * 4 / 30 rounded up


@pytest.mark.parametrize("selector", INFORMED, **BY_NAME)
def test_who_never_answers_is_asked_less_and_less(selector: Selector) -> None:
    """Clients 4 to 7 never answer: asked in rounds 0, 2, 5, 10, 19 and 36, or as soon as there is a seat."""
    rng = np.random.default_rng(0)
    store = SignalStore(8)
    asked = np.zeros(8, int)
    for round in range(41):
        answers = np.arange(8) < (4 if round < 40 else 8)
        cohort = selector.select(store.signals(round), 4, rng=rng)
        asked[cohort] += 1
        store.observe(cohort, round=round)
        answered = cohort[answers[cohort]]
        if len(answered):
            store.observe(answered, updates=rng.normal(size=(len(answered), 3)), losses=rng.random(len(answered)))
    assert (asked[4:] <= 6).all()
    assert (asked[4:] >= 4).all()


def test_who_answers_at_last_is_back_at_once() -> None:
    rng = np.random.default_rng(0)
    store = SignalStore(6)
    store.observe(np.arange(5), updates=rng.normal(size=(5, 3)))
    for round in (0, 2, 5):
        store.observe([5], round=round)
    assert 5 not in Rota().select(store.signals(6), 5, rng=0)
    store.observe([5], updates=rng.normal(size=(1, 3)))
    for round in range(6, 18):
        store.observe(Rota().select(store.signals(round), 2, rng=round), round=round)
    times = store.signals(18).times_selected
    assert times.max() - times.min() == 1  # it was three turns ahead


def without(signals: Signals, names: Iterable[str]) -> Signals:
    """The same without these signals; without lengths alone, updates are distances."""
    given: dict[str, Any] = dict.fromkeys(names)
    if "losses" in given:
        given["losses"] = np.full(signals.n, np.nan)
    if "updates" in given:
        given = {"lengths": signals.norms, **given}
    elif "lengths" in given:
        assert signals.updates is not None
        apart = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
        given = {**given, "updates": None, "distances": apart}
    return replace(signals, **given)


@pytest.mark.parametrize(
    ("selector", "name"), MISSING, ids=[f"{type(selector).__name__}-{name}" for selector, name in MISSING]
)
def test_a_signal_that_nobody_sends_is_a_warning_that_names_it_once(selector: Selector, name: str) -> None:
    """It says what is done instead, whatever else is sent; and Python shows it once, however many rounds there are."""
    signals = random_signals(20)
    others = [
        n for n in ("losses", "updates", "durations", "label_counts", "bias_updates") if n not in needs(selector)
    ]
    for also in ([], others):
        given = without(signals, [name, *also])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            cohorts = [selector.select(given, 5, rng=np.random.default_rng(seed)) for seed in range(5)]
        assert all(len(set(cohort.tolist())) == 5 for cohort in cohorts)
        (message,) = {str(warning.message) for warning in caught}
        assert message.startswith(f"no client has sent {name} yet, which this selector needs: it ")
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("selector", EVERY, **BY_NAME)
def test_clients_that_were_asked_and_sent_nothing_are_a_warning(selector: Selector) -> None:
    store = SignalStore(20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.observe(selector.select(store.signals(0), 5, rng=np.random.default_rng(0)), round=0)
        assert not caught  # nobody was asked yet
        selector.select(store.signals(1), 5, rng=np.random.default_rng(1))
    assert bool(caught) == bool(needs(selector))
    assert all("it chose at random" in str(warning.message) for warning in caught)
