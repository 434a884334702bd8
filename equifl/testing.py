"""The battery that every selector passes, ours and yours."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np

from equifl.selectors.rules import Selector
from equifl.signals import Ints, Signals


class SelectorContract:
    """Inherit it, say how to make your selector, and run pytest.

        class TestMine(SelectorContract):
            def make(self):
                return MySelector(strength=3)

    Attributes:
        random: whether the choice depends on `rng` when every client has been heard from.
        strangers_first: whether clients never heard from go before all others, as is the rule. A
            selector that looks at no signal has no reason to.
        draws: how many choices frequencies are judged by. Fewer are for a selector that is slow: less is seen.
    """

    random: ClassVar[bool] = False
    strangers_first: ClassVar[bool] = True
    draws: ClassVar[int] = 400

    def make(self) -> Selector:
        """A new selector with the parameters to be tested."""
        raise NotImplementedError("make() must return the selector to test")

    def test_is_a_selector(self) -> None:
        assert isinstance(self.make(), Selector)

    def test_returns_k_distinct_available_ids(self) -> None:
        for seed in range(5):
            signals = made_up_signals(40, seed=seed, offline=0.3)
            for k in (1, 2, 7, int(signals.available.sum())):
                self.check(self.choose(signals, k, seed), signals, k)

    def test_is_deterministic_given_the_generator(self) -> None:
        signals = made_up_signals(40, strangers=5)
        assert self.choose(signals, 12, seed=3).tolist() == self.choose(signals, 12, seed=3).tolist()

    def test_leaves_no_trace(self) -> None:
        """One selector, used again, chooses as a new one would: it remembers nothing."""
        first, second = made_up_signals(30, seed=1), made_up_signals(30, seed=2)
        selector = self.make()
        selector.select(first, 5, rng=np.random.default_rng(0))
        again = selector.select(second, 5, rng=np.random.default_rng(0))
        assert again.tolist() == self.choose(second, 5, seed=0).tolist()

    def test_varies_with_the_seed_if_it_is_random(self) -> None:
        signals = made_up_signals(60)
        choices = {tuple(self.choose(signals, 6, seed)) for seed in range(10)}
        assert (len(choices) > 1) == self.random

    def test_labels_do_not_matter(self) -> None:
        """Renumbering the clients renumbers the choice.

        The signals have no ties. If the choice is random, how often each client is chosen must not change.
        """
        signals = made_up_signals(12)
        order = np.random.default_rng(5).permutation(signals.n)
        renumbered = reorder(signals, order)
        if not self.random:
            assert order[self.choose(renumbered, 4, seed=0)].tolist() == self.choose(signals, 4, seed=0).tolist()
            return
        seeds = range(self.draws)
        counts = sum(np.bincount(self.choose(signals, 4, seed), minlength=12) for seed in seeds)
        others = sum(np.bincount(order[self.choose(renumbered, 4, seed)], minlength=12) for seed in seeds)
        # A difference of two frequencies has a deviation of at most sqrt(2 / 4 / draws): five of them.
        assert np.abs(counts - others).max() / self.draws < 5 * (0.5 / self.draws) ** 0.5

    def test_strangers_come_first_in_random_order(self) -> None:
        signals = made_up_signals(30, strangers=10)
        strangers = np.flatnonzero(~signals.knows_loss)
        few = [self.choose(signals, 6, seed) for seed in range(10)]
        many = self.choose(signals, 15, seed=0)
        for chosen in few:
            self.check(chosen, signals, 6)
        self.check(many, signals, 15)
        if self.strangers_first:
            assert all(np.isin(chosen, strangers).all() for chosen in few)
            assert len({tuple(chosen) for chosen in few}) > 1
            assert set(many[:10].tolist()) == set(strangers.tolist())

    def test_nobody_heard_yet(self) -> None:
        signals = Signals(losses=np.full(20, np.nan))
        choices = [self.choose(signals, 5, seed) for seed in range(10)]
        for chosen in choices:
            self.check(chosen, signals, 5)
        assert len({tuple(chosen) for chosen in choices}) > 1

    def test_a_silent_stranger_does_not_hold_a_seat(self) -> None:
        """Asked a hundred times, never heard: others have their turn too."""
        signals = made_up_signals(30, strangers=1)
        silent = int(np.flatnonzero(~signals.knows_loss)[0])
        times = signals.times_selected.copy()
        times[silent] = 100
        signals = replace(signals, times_selected=times)
        assert not all(silent in self.choose(signals, 5, seed) for seed in range(20))
        self.check(self.choose(signals, 30, seed=0), signals, 30)

    def test_takes_everyone_and_warns_if_k_is_more_than_are_available(self) -> None:
        signals = made_up_signals(20, offline=0.5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            chosen = self.choose(signals, 20, seed=0)
        assert sorted(chosen.tolist()) == np.flatnonzero(signals.available).tolist()
        assert any("available" in str(warning.message) for warning in caught), "no warning says so"

    def test_nobody_available(self) -> None:
        signals = replace(made_up_signals(5), available=np.zeros(5, bool))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len(self.choose(signals, 2, seed=0)) == 0

    def test_one_client(self) -> None:
        for strangers in (0, 1):
            signals = made_up_signals(1, strangers=strangers)
            assert self.choose(signals, 1, seed=0).tolist() == [0]

    def test_all_clients_alike(self) -> None:
        """Nothing but ties."""
        signals = Signals(losses=np.ones(8), updates=np.ones((8, 3)))
        for k in (1, 3, 8):
            self.check(self.choose(signals, k, seed=0), signals, k)

    def test_distances_instead_of_updates(self) -> None:
        signals = made_up_signals(20)
        assert signals.updates is not None
        distances = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
        given = replace(signals, updates=None, distances=distances)
        self.check(self.choose(given, 6, seed=0), given, 6)

    def test_refuses_k_below_one(self) -> None:
        for k in (0, -1, 2.5):
            refusal = ""
            try:
                self.choose(made_up_signals(5), k, seed=0)  # type: ignore[arg-type]
            except ValueError as error:
                refusal = str(error)
            assert "k" in refusal, f"k = {k} was accepted, or the ValueError does not name k"

    def choose(self, signals: Signals, k: int, seed: int) -> Ints:
        """What a new selector chooses with a new generator."""
        return self.make().select(signals, k, rng=np.random.default_rng(seed))

    def check(self, chosen: Ints, signals: Signals, k: int) -> None:
        """An integer array of k distinct available ids."""
        assert isinstance(chosen, np.ndarray)
        assert chosen.dtype.kind == "i", f"ids of type {chosen.dtype}"
        assert chosen.shape == (k,), f"{chosen.shape} for k = {k}"
        assert len(set(chosen.tolist())) == k, f"somebody twice: {chosen.tolist()}"
        assert ((chosen >= 0) & (chosen < signals.n)).all(), f"ids out of range: {chosen.tolist()}"
        assert signals.available[chosen].all(), f"somebody unavailable: {chosen.tolist()}"


def made_up_signals(n: int, *, seed: int = 0, strangers: int = 0, offline: float = 0.0, d: int = 6) -> Signals:
    """Clients in round 9 with random losses, updates and histories; the strangers are drawn among them.

    >>> made_up_signals(4, strangers=1).knows_loss.sum()
    np.int64(3)
    """
    rng = np.random.default_rng([seed, n])
    losses, updates = rng.exponential(size=n), rng.normal(size=(n, d))
    times = rng.integers(1, 4, size=n)
    last = rng.integers(0, 9, size=n)
    unheard = rng.permutation(n)[:strangers]
    losses[unheard], updates[unheard], times[unheard], last[unheard] = np.nan, np.nan, 0, -1
    return Signals(
        losses=losses,
        updates=updates,
        last_selected=last,
        times_selected=times,
        sizes=rng.integers(1, 100, size=n).astype(float),
        available=rng.random(n) >= offline,
        round=9,
    )


def reorder(signals: Signals, order: Ints) -> Signals:
    """The same clients under other numbers: the new client i is the old `order[i]`."""
    assert signals.updates is not None
    fields = ("losses", "updates", "last_selected", "times_selected", "missed_turns", "joined", "sizes", "available")
    return replace(signals, **{name: getattr(signals, name)[order] for name in fields})
