"""SelectorContract: tests that every selector must pass, including your own.

Longer than 300 lines because it is one class, a test a rule, with the sentence that each failure says.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np

from equifl.selectors.base import HasWeights, Selector
from equifl.signals import OPTIONAL, Floats, Ints, Signals


class SelectorContract:
    """Tests of a selector: inherit it, implement `make`, and run pytest.

        class TestMine(SelectorContract):
            def make(self):
                return MySelector(strength=3)

    Attributes:
        random: whether the choice depends on `rng` when every client is known.
        unknown_first: whether unknown clients come before all others, as is the rule. A selector that uses no signal
            has no reason to.
        draws: choices over which frequencies are measured. Fewer are faster and detect less.
    """

    random: ClassVar[bool] = False
    unknown_first: ClassVar[bool] = True
    draws: ClassVar[int] = 400

    def make(self) -> Selector:
        """A new selector with the parameters to be tested."""
        raise NotImplementedError("make() must return the selector to test")

    def test_is_a_selector(self) -> None:
        made = self.make()
        expect(
            isinstance(made, Selector), f"make() must return an object with select(signals, k, *, rng); got {made!r}"
        )

    def test_returns_k_distinct_available_ids(self) -> None:
        for seed in range(5):
            signals = random_signals(40, seed=seed, offline=0.3)
            for k in (1, 2, 7, int(signals.available.sum())):
                self.check(self.choose(signals, k, seed), signals, k)

    def test_is_deterministic_given_the_generator(self) -> None:
        signals = random_signals(40, unknown=5)
        first, second = (self.choose(signals, 12, seed=3).tolist() for _ in range(2))
        expect(
            first == second,
            "select() must choose the same clients whenever signals and the state of rng are the same: take all "
            f"randomness from rng; got {first}, then {second}",
        )

    def test_leaves_no_trace(self) -> None:
        """A selector that was used before chooses as a new one does: it has no state."""
        first, second = random_signals(30, seed=1), random_signals(30, seed=2)
        selector = self.make()
        selector.select(first, 5, rng=np.random.default_rng(0))
        again = np.asarray(selector.select(second, 5, rng=np.random.default_rng(0))).tolist()
        new = self.choose(second, 5, seed=0).tolist()
        expect(
            again == new,
            "select() must not remember earlier calls, neither in the selector nor outside of it: what a selector may "
            f"remember is in signals; got {again} from a selector that was used before, {new} from a new one",
        )

    def test_varies_with_the_seed_if_it_is_random(self) -> None:
        signals = random_signals(60)
        choices = {tuple(self.choose(signals, 6, seed).tolist()) for seed in range(10)}
        if self.random:
            expect(
                len(choices) > 1,
                "select() must depend on rng, since the contract says random = True; got the same choice from 10 "
                f"generators: {list(min(choices))}. Draw from rng, or say random = False",
            )
        else:
            expect(
                len(choices) == 1,
                "select() must not depend on rng where every client is known, since the contract says random = False; "
                f"got {len(choices)} different choices from 10 generators. Say random = True if that is meant",
            )

    def test_labels_do_not_matter(self) -> None:
        """Renumbering the clients renumbers the choice.

        The signals have no ties. If the choice is random, how often each client is chosen must not change.
        """
        rule = "select() must not depend on how clients are numbered, but for ties; "
        signals = random_signals(12)
        order = np.random.default_rng(5).permutation(signals.n)
        renumbered = reorder(signals, order)
        if not self.random:
            first = self.choose(signals, 4, seed=0).tolist()
            second = order[self.choose(renumbered, 4, seed=0)].tolist()
            expect(first == second, f"{rule}got {first}, and {second} when the same clients had other numbers")
            return
        counts, others = np.zeros(12, np.int64), np.zeros(12, np.int64)
        for seed in range(self.draws):
            counts += np.bincount(self.choose(signals, 4, seed), minlength=12)
            others += np.bincount(order[self.choose(renumbered, 4, seed)], minlength=12)
        # A difference of two frequencies has a deviation of at most sqrt(2 / 4 / draws): five of them.
        client = int(np.abs(counts - others).argmax())
        expect(
            abs(counts[client] - others[client]) / self.draws < 5 * (0.5 / self.draws) ** 0.5,
            f"{rule}client {client} was chosen in {counts[client]} of {self.draws} draws, and in {others[client]} "
            "when the same clients had other numbers",
        )

    def test_unknown_clients_come_first_in_random_order(self) -> None:
        signals = random_signals(30, unknown=10)
        unknown = np.flatnonzero(~signals.knows_loss)
        few = [self.choose(signals, 6, seed) for seed in range(10)]
        many = self.choose(signals, 15, seed=0)
        for chosen in few:
            self.check(chosen, signals, 6)
        self.check(many, signals, 15)
        if self.unknown_first:
            rule = (
                "select() must choose unknown clients first, in random order, since the contract says unknown_first "
                "= True (equifl.selectors.unknown_first does it); "
            )
            for chosen in few:
                known = chosen[~np.isin(chosen, unknown)].tolist()
                expect(not known, f"{rule}got the known clients {known} for k = 6, though 10 were unknown")
            expect(len({tuple(chosen) for chosen in few}) > 1, f"{rule}got {few[0].tolist()} from 10 generators")
            missed = np.setdiff1d(unknown, many[:10]).tolist()
            expect(not missed, f"{rule}the unknown clients {missed} are not among the first 10 of {many.tolist()}")

    def test_nobody_known_yet(self) -> None:
        signals = Signals(losses=np.full(20, np.nan))
        choices = [self.choose(signals, 5, seed) for seed in range(10)]
        for chosen in choices:
            self.check(chosen, signals, 5)
        expect(
            len({tuple(chosen) for chosen in choices}) > 1,
            "select() must choose at random while no client is known; got the same choice from 10 generators: "
            f"{choices[0].tolist()}",
        )

    def test_a_silent_client_is_not_always_selected(self) -> None:
        """A client that was selected a hundred times and never replied must give way to others."""
        signals = random_signals(30, unknown=1)
        silent = int(np.flatnonzero(~signals.knows_loss)[0])
        times = signals.times_selected.copy()
        times[silent] = 100
        signals = replace(signals, times_selected=times)
        expect(
            not all(silent in self.choose(signals, 5, seed) for seed in range(20)),
            "select() must not always select an unknown client that never replies; got client "
            f"{silent}, selected 100 times and still unknown, with each of 20 generators",
        )
        self.check(self.choose(signals, 30, seed=0), signals, 30)

    def test_takes_everyone_and_warns_if_k_is_more_than_are_available(self) -> None:
        signals = random_signals(20, offline=0.5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            chosen = sorted(self.choose(signals, 20, seed=0).tolist())
        available = np.flatnonzero(signals.available).tolist()
        expect(
            chosen == available,
            f"select() must return all available clients if k is more than there are; got {chosen} for k = 20, where "
            f"{available} are available",
        )
        messages = [str(warning.message) for warning in caught]
        expect(
            any("available" in message for message in messages),
            'select() must warn, with the word "available", if k is more than there are '
            f"(equifl.selectors.cohort_size does it); got the warnings {messages} for k = 20, where "
            f"{len(available)} are available",
        )

    def test_nobody_available(self) -> None:
        signals = replace(random_signals(5), available=np.zeros(5, bool))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = self.choose(signals, 2, seed=0).tolist()
        expect(not chosen, f"select() must return an empty array if nobody is available; got {chosen}")

    def test_one_client(self) -> None:
        for unknown in (0, 1):
            signals = random_signals(1, unknown=unknown)
            chosen = self.choose(signals, 1, seed=0).tolist()
            expect(chosen == [0], f"select() must return [0] if there is one client; got {chosen}")

    def test_all_clients_alike(self) -> None:
        """Nothing but ties."""
        signals = Signals(losses=np.ones(8), updates=np.ones((8, 3)))
        for k in (1, 3, 8):
            self.check(self.choose(signals, k, seed=0), signals, k)

    def test_distances_instead_of_updates(self) -> None:
        signals = random_signals(20)
        assert signals.updates is not None
        distances = np.linalg.norm(signals.updates[:, None] - signals.updates, axis=2)
        for lengths in (None, np.linalg.norm(signals.updates, axis=1)):
            given = replace(signals, updates=None, distances=distances, lengths=lengths)
            self.check(self.choose(given, 6, seed=0), given, 6)

    def test_weights_if_it_has_any(self) -> None:
        """One finite number of 0 or more for each member, always the same, whatever the numbers of the clients."""
        if not isinstance(self.make(), HasWeights):
            return
        for seed, unknown in ((0, 0), (1, 0), (2, 4), (3, 20)):
            signals = random_signals(20, seed=seed, unknown=unknown, offline=0.2)
            for k in (1, 4, int(signals.available.sum())):
                cohort = self.choose(signals, k, seed)
                found, again = (self.weigh(signals, cohort) for _ in range(2))
                rule = f"weights() must follow from signals and cohort alone, for {_situation(signals, k)}; got "
                expect(bool((found == again).all()), f"{rule}{found.tolist()}, then {again.tolist()}")
                order = np.random.default_rng(seed).permutation(signals.n)
                there = np.argsort(order)[cohort]  # the same clients under their new numbers
                other = self.weigh(reorder(signals, order), there)
                same = np.allclose(other, found, rtol=1e-6)
                expect(same, f"{rule}{found.tolist()}, and {other.tolist()} when the same clients had other numbers")

    def weigh(self, signals: Signals, cohort: Ints) -> Floats:
        """The weights of a cohort, or the test fails."""
        selector = self.make()
        assert isinstance(selector, HasWeights)
        found = selector.weights(signals, cohort)
        ok = isinstance(found, np.ndarray) and found.shape == cohort.shape and found.dtype.kind in "iuf"
        ok = ok and bool(((found >= 0) & (found < np.inf)).all() and (found.any() or not len(cohort)))
        expect(
            ok,
            "weights() must return an array of one finite number of 0 or more for each member, not all 0; got "
            f"{found!r} for {cohort.tolist()} of {_situation(signals, len(cohort))}",
        )
        return found

    def test_refuses_k_below_one(self) -> None:
        for k in (0, -1, 2.5):
            rule = f"select() must refuse k = {k} with a ValueError that names k; "
            selector, signals, rng = self.make(), random_signals(5), np.random.default_rng(0)
            try:
                chosen = selector.select(signals, k, rng=rng)  # type: ignore[arg-type]
            except Exception as error:
                named = isinstance(error, ValueError) and "k" in str(error)
                expect(named, f"{rule}got {type(error).__name__}: {error}")
            else:
                expect(False, f"{rule}it returned {chosen!r}")

    def choose(self, signals: Signals, k: int, seed: int) -> Ints:
        """What a new selector chooses with a new generator: an array of integers, or the test fails."""
        selector = self.make()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "no client has sent")  # a signal that not every test has
                chosen = selector.select(signals, k, rng=np.random.default_rng(seed))
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
            raise AssertionError(f"select() must not fail for {_situation(signals, k)}; it raised {failed}") from error
        kind = chosen.dtype if isinstance(chosen, np.ndarray) else type(chosen).__name__
        expect(
            isinstance(chosen, np.ndarray) and chosen.dtype.kind == "i" and chosen.ndim == 1,
            f"select() must return a one-dimensional array of integers; got {chosen!r} ({kind}) for "
            f"{_situation(signals, k)}",
        )
        return chosen

    def check(self, chosen: Ints, signals: Signals, k: int) -> None:
        """K distinct available ids."""
        ids = chosen.tolist()
        twice = sorted({client for client in ids if ids.count(client) > 1})
        outside = [client for client in ids if not 0 <= client < signals.n]
        away = [client for client in ids if client not in outside and not signals.available[client]]
        faults = [f"{len(ids)} ids"] if len(ids) != k else []
        for clients, fault in ((twice, "more than once"), (outside, "are no ids"), (away, "are not available")):
            faults += [f"{clients} {fault}"] if clients else []
        rule = "select() must return k different ids of available clients"
        expect(not faults, f"{rule}; got {ids} for {_situation(signals, k)}: {', '.join(faults)}")


def expect(condition: bool, sentence: str) -> None:
    """Fail a test with a sentence that says what is expected; `python -O` does not switch it off."""
    if not condition:
        raise AssertionError(sentence)


def _situation(signals: Signals, k: int) -> str:
    """The arguments of a call of `select`, in words."""
    unknown = signals.n - int((signals.knows_loss & signals.knows_update).sum())
    available = int(signals.available.sum())
    instead = ", with distances instead of updates" if signals.distances is not None else ""
    return f"k = {k} of {signals.n} clients ({available} available, {unknown} unknown{instead})"


def random_signals(n: int, *, seed: int = 0, unknown: int = 0, offline: float = 0.0, d: int = 6) -> Signals:
    """Clients in round 9 with random signals and histories; `unknown` of them, drawn at random, are unknown.

    >>> random_signals(4, unknown=1).knows_loss.sum()
    np.int64(3)
    """
    rng = np.random.default_rng([seed, n])
    losses, updates = rng.exponential(size=n), rng.normal(size=(n, d))
    more = np.random.default_rng([seed, n, 1])
    durations, bias_updates = more.lognormal(size=n), more.normal(size=(n, 4))
    label_counts = more.integers(0, 50, size=(n, 4)).astype(float)
    times = rng.integers(1, 4, size=n)
    last = rng.integers(0, 9, size=n)
    silent = rng.permutation(n)[:unknown]
    losses[silent], updates[silent], times[silent], last[silent] = np.nan, np.nan, 0, -1
    durations[silent], label_counts[silent], bias_updates[silent] = np.nan, np.nan, np.nan
    return Signals(
        losses=losses,
        updates=updates,
        last_selected=last,
        times_selected=times,
        sizes=rng.integers(1, 100, size=n).astype(float),
        available=rng.random(n) >= offline,
        round=9,
        durations=durations,
        label_counts=label_counts,
        bias_updates=bias_updates,
    )


def reorder(signals: Signals, order: Ints) -> Signals:
    """The same clients under other numbers: the new client i is the old `order[i]`."""
    assert signals.updates is not None
    of_each = ("losses", "updates", "last_selected", "times_selected", "missed_turns", "waited", "joined", "sizes")
    given = [name for name in OPTIONAL if getattr(signals, name) is not None]
    return replace(signals, **{name: getattr(signals, name)[order] for name in (*of_each, "available", *given)})
