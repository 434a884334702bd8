"""AggregatorContract: tests that every server rule must pass, including your own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar

import numpy as np

from equifl.aggregators.base import Aggregator, Replies
from equifl.signals import Floats, Ints
from equifl.testing.selector_contract import expect


class AggregatorContract:
    """Tests of a server rule: inherit it, implement `make`, and run pytest.

        class TestMine(AggregatorContract):
            def make(self):
                return MyRule(strength=3)

    Attributes:
        linear: whether updates that are c times as long make steps that are c times as long, and the first reply of
            all is the step.
        in_file: whether the memory is in a file, which a copy of the arrays does not copy.
        tolerance: the relative error that is allowed between two ways to the same step.
    """

    linear: ClassVar[bool] = True
    in_file: ClassVar[bool] = False
    tolerance: ClassVar[float] = 1e-5

    def make(self) -> Aggregator:
        """A new rule with the parameters to be tested."""
        raise NotImplementedError("make() must return the server rule to test")

    def test_is_a_rule(self) -> None:
        made = self.make()
        expect(
            isinstance(made, Aggregator),
            f"make() must return an object with needs and step(replies, memory); got {made!r}",
        )
        unknown = set(made.needs) - {"losses", "weights"}
        expect(not unknown, f'needs must be of "losses" and "weights"; got {sorted(unknown)}')

    def test_steps_are_finite_and_of_the_form_of_an_update(self) -> None:
        for d in (1, 7):
            rounds = random_replies(6, d=d)
            for round, step in enumerate(self.steps(rounds)):
                form = f"{step.dtype} of shape {step.shape}"
                expect(
                    step.dtype == np.float32 and step.shape == (d,),
                    f"step() must return an array of the updates' type, one number a parameter: float32 of shape "
                    f"({d},); got {form} in round {round}",
                )
                expect(
                    bool(np.isfinite(step).all()), f"step() must return finite numbers; got {step} in round {round}"
                )

    def test_the_order_of_replies_does_not_matter(self) -> None:
        rounds = random_replies(5)
        rng = np.random.default_rng(1)
        other = [reordered(replies, rng.permutation(len(replies.clients))) for replies in rounds]
        self.compare(self.steps(rounds), self.steps(other), "step() must not depend on the order of replies")

    def test_the_numbers_of_clients_do_not_matter(self) -> None:
        rounds = random_replies(5)
        names = np.random.default_rng(2).permutation(rounds[0].n)
        other = [replace(replies, clients=names[replies.clients]) for replies in rounds]
        self.compare(self.steps(rounds), self.steps(other), "step() must not depend on how clients are numbered")

    def test_the_scale_of_updates(self) -> None:
        if not self.linear:
            return
        rounds = random_replies(4)
        other = [replace(replies, updates=replies.updates * np.float32(8)) for replies in rounds]
        rule = "step() must be 8 times as long if all updates are, since the contract says linear = True"
        self.compare([8 * step for step in self.steps(rounds)], self.steps(other), rule)

    def test_one_reply(self) -> None:
        (replies,) = random_replies(1, cohort=1)
        (step,) = self.steps([replies])
        update = replies.updates[0]
        if self.linear:
            rule = "the first reply of all must be the step, since the contract says linear = True"
            self.compare([update], [step], rule)
        cosine = step @ update / max(1e-30, float(np.linalg.norm(step) * np.linalg.norm(update)))
        expect(cosine > 0.999, f"the step from one reply must go its way; got {step} from the update {update}")

    def test_the_same_memory_gives_the_same_step(self) -> None:
        """What a rule remembers is in the memory that it returns, and not in the rule or elsewhere."""
        rounds = random_replies(6)
        again = self.steps(rounds, new=True)
        rule = "step() must remember nothing but in the memory that it returns, from which a new rule goes on"
        self.compare(self.steps(rounds), again, rule, exact=True)

    def test_replies_are_not_changed(self) -> None:
        rounds = random_replies(5)
        before = copy.deepcopy(rounds)
        self.steps(rounds)
        for given, was in zip(rounds, before, strict=True):
            for name in ("clients", "updates", "sizes", "losses", "weights"):
                same = np.array_equal(getattr(given, name), getattr(was, name), equal_nan=name != "clients")
                expect(same, f"step() must not change the replies; it changed their {name}")

    def test_its_memory_goes_through_a_checkpoint(self) -> None:
        if self.in_file:
            return
        rounds = random_replies(6)
        again = self.steps(rounds, through=stored_and_read)
        rule = "step() must go on in the same way from a memory that was stored and read again"
        self.compare(self.steps(rounds), again, rule, exact=True)

    def test_arrays_and_tensors_are_treated_alike(self) -> None:
        """With PyTorch, if it is installed."""
        try:
            torch = import_module("torch")
        except ImportError:
            return
        rounds = random_replies(6)
        tensors = [as_tensors(replies, torch) for replies in rounds]
        found = self.steps(tensors)
        kind = type(found[0]).__name__
        expect(
            all(isinstance(step, torch.Tensor) for step in found),
            f"step() must return a tensor where the updates are one; got {kind}",
        )
        rule = "step() must give the same for arrays of numpy and tensors of PyTorch"
        self.compare(self.steps(rounds), [step.numpy() for step in found], rule)

    def steps(self, rounds: Sequence[Replies], *, new: bool = False, through: Any = None) -> list[Any]:
        """The steps of a rule over some rounds; a `new` rule each, its memory `through` a function."""
        rule, memory, found = self.make(), None, []
        for replies in rounds:
            rule = self.make() if new else rule
            step, memory = rule.step(replies, memory)
            memory = memory if through is None or memory is None else through(memory)
            found.append(step if not isinstance(step, np.ndarray) else step.copy())  # it may become the memory
        return found

    def compare(self, ones: Sequence[Any], others: Sequence[Any], rule: str, *, exact: bool = False) -> None:
        """Fail unless these steps are the same, but for rounding."""
        for round, (one, other) in enumerate(zip(ones, others, strict=True)):
            near = 0.0 if exact else self.tolerance * max(1e-30, float(np.abs(one).max()))
            same = one.shape == other.shape and bool((np.abs(one - other) <= near).all())
            expect(same, f"{rule}; got {one} and {other} in round {round}")


def random_replies(rounds: int, *, n: int = 8, d: int = 5, cohort: int | None = None, seed: int = 0) -> list[Replies]:
    """Replies of 1 to 4 of n clients, or of `cohort` of them, in each of some rounds; updates in float32.

    >>> [len(replies.clients) for replies in random_replies(3)]
    [4, 1, 4]
    """
    rng = np.random.default_rng([seed, n, d])
    found = []
    for _ in range(rounds):
        m = int(rng.integers(1, 5)) if cohort is None else cohort
        clients: Ints = rng.permutation(n)[:m]
        updates = rng.normal(size=(m, d)).astype(np.float32)
        sizes, losses = rng.integers(1, 100, m).astype(np.float64), rng.exponential(size=m)
        weights: Floats = rng.dirichlet(np.ones(m)) * n
        found.append(Replies(clients, updates, sizes, losses, n, weights, lr=0.1))
    return found


def reordered(replies: Replies, order: Ints) -> Replies:
    """The same replies in another order."""
    names = ("clients", "updates", "sizes", "losses", "weights")
    return replace(replies, **{name: getattr(replies, name)[order] for name in names})


def as_tensors(replies: Replies, torch: Any) -> Replies:
    """The same replies as tensors."""
    names = ("updates", "sizes", "losses", "weights")
    return replace(replies, **{name: torch.from_numpy(getattr(replies, name).copy()) for name in names})


def stored_and_read(memory: Any) -> Any:
    """A memory as it comes back from a file: what is no tuple or dict of arrays fails the test."""
    parts = dict(enumerate(memory)) if isinstance(memory, tuple) else memory
    plain = isinstance(parts, dict) and all(isinstance(part, np.ndarray | np.generic) for part in parts.values())
    form = (
        f"{type(memory).__name__} of {sorted({type(part).__name__ for part in parts.values()})}" if parts else memory
    )
    expect(plain, f"step() must return None, a tuple of arrays or a dict of arrays as its memory; got {form}")
    named = isinstance(memory, tuple) or all(isinstance(name, str) and name.isidentifier() for name in parts)
    expect(named, f"the parts of a memory must have plain names; got {sorted(map(repr, parts))}")
    file = BytesIO()
    np.savez(file, **{str(name): part for name, part in parts.items()})
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        found = {name: read[str(name)] for name in parts}
    return tuple(found.values()) if isinstance(memory, tuple) else found
