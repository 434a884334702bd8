"""A server rule of equifl in a live federation: from replies to the next model, with its memory between rounds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import require
from equifl.aggregators.base import Aggregator, Replies, replied_weights, without
from equifl.hosts.journal import options_of, require_list
from equifl.hosts.updates import Arrays, Updates
from equifl.hosts.usable import LONGEST, MisfitError, SetAsideError
from equifl.selectors.base import HasWeights, weights_of
from equifl.signals import Floats, Ints, Signals

_PREFIX = "rule."


@dataclass(frozen=True)
class Reply:
    """What a client sent, for a rule; nan and 1 where it reported no loss and no number of examples."""

    client: int
    arrays: Arrays
    size: float
    loss: float


class ServerRule:
    """The rule, what it remembers, and the arrays that it makes; all others are averaged by numbers of examples.

    Args:
        rule: one of `equifl.aggregators`, or one of your own.
        updates: of which arrays an update is made.
        log: where to say how much memory it takes.
    """

    def __init__(self, rule: Any, updates: Updates, log: logging.Logger) -> None:
        fits = isinstance(rule, Aggregator) and not isinstance(rule, type)
        require("aggregator", rule, fits, "a server rule, with needs and step, such as Memory()")
        why = "'whole' or 'float16': a file is made for a number of clients, and a live federation grows"
        require("aggregator.keep", "file", getattr(rule, "keep", None) != "file", why)
        self.rule, self._updates, self._log = rule, updates, log
        self._memory: Any = None
        self._names: list[str] = []  # the arrays of an update, in the order of the rule's vectors
        self._cohort: Ints = np.zeros(0, np.int64)
        self._weights: Floats = np.zeros(0)
        self._said, self._warned = 0, False
        try:  # once, with next to nothing: what a rule lacks is said before a round was played
            one = np.ones(1)
            rule.step(Replies(np.zeros(1, np.int64), np.ones((1, 2), np.float32), one, one, 1, one), None)
        except ValueError as error:
            raise ValueError(f"aggregator: {error}") from None

    @property
    def needs_loss(self) -> bool:
        """Whether every reply must have a loss."""
        return "losses" in self.rule.needs

    @property
    def table(self) -> dict[str, Any]:
        """Its class and parameters, for a configuration."""
        return _table(self.rule)

    def require_whole(self, sent: Arrays, arrays: Arrays) -> None:
        """Raise SetAsideError for a reply that lacks a part of the update, or whose update is too long."""
        there = self._updates.names(sent, arrays)
        missing = [name for name in self._of(sent) if name not in there]
        if missing:
            raise MisfitError(f"it lacks the array {missing[0]}, which the aggregator needs")
        for _, after in self._updates.pairs(sent, arrays):
            if not (after.min(initial=0) > -LONGEST and after.max(initial=0) < LONGEST):
                raise SetAsideError("its update is too long")

    def selected(self, selector: object, signals: Signals, cohort: Ints) -> None:
        """Keep the selector's weights of a cohort, if the rule looks at them."""
        if "weights" in self.rule.needs:
            if not isinstance(selector, HasWeights) and not self._warned:
                text = "equifl: %s has no weights: replies count the same under %s"
                self._log.warning(text, type(selector).__name__, type(self.rule).__name__)
                self._warned = True
            self._cohort, self._weights = cohort, weights_of(selector, signals, cohort, type(selector).__name__)

    def step(
        self, sent: Arrays, replies: Sequence[Reply], population: int, cohort: Ints | None = None, free: int = 0
    ) -> dict[str, NDArray[Any]]:
        """The next model, each array in the type that was sent; with so many ids of clients, of which some are `free`.

        `cohort`: the ids that those who were selected have by now, if replies may have said who they are.
        """
        names = self._names = self._of(sent)
        clients = np.array([reply.client for reply in replies], np.int64)
        sizes = np.array([reply.size for reply in replies])
        weights, cohort = None, self._cohort if cohort is None else cohort
        if "weights" in self.rule.needs:
            weights = replied_weights(self._weights, cohort, clients)
        matrix = self._matrix(sent, replies)
        losses = np.array([reply.loss for reply in replies])
        of_round = Replies(clients, matrix, sizes, losses, population, weights, free=free)
        step, self._memory = self.rule.step(of_round, self._memory)
        self._say(population, matrix.shape[1])
        made, at = dict(sent), 0
        for name in names:
            array = sent[name]
            part = np.asarray(step[at : at + array.size]).reshape(array.shape)
            made[name], at = np.asarray(array - part, array.dtype), at + array.size
        return made | self._means(sent, replies, set(names), sizes / sizes.sum())

    def state(self) -> dict[str, NDArray[Any]]:
        """Its memory as plain arrays."""
        parts = self._parts()
        named = {f"{_PREFIX}parts": np.array(list(parts), np.str_), f"{_PREFIX}names": np.array(self._names, np.str_)}
        return named | {f"{_PREFIX}part.{name}": part for name, part in parts.items()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; ValueError if that cannot be."""
        for name in ("parts", "names"):
            require_list(state, f"{_PREFIX}{name}", "U")
        self._names = state[f"{_PREFIX}names"].tolist()
        parts = state[f"{_PREFIX}parts"].tolist()
        missing = [name for name in parts if f"{_PREFIX}part.{name}" not in state]
        if missing:
            raise ValueError(f"checkpoint: has no `{_PREFIX}part.{missing[0]}`")
        found = {name: np.array(state[f"{_PREFIX}part.{name}"]) for name in parts}
        as_tuple = bool(found) and all(map(str.isdecimal, found))
        self._memory = tuple(found.values()) if as_tuple else found or None

    def forget(self, who: Iterable[int]) -> None:
        """Remember nothing of these clients: their numbers are free for others."""
        self._memory = without(self.rule, self._memory, np.array(list(who), np.int64))

    def _parts(self) -> dict[str, NDArray[Any]]:
        """The arrays of its memory by their names."""
        memory = self._memory
        named = {str(i): part for i, part in enumerate(memory)} if isinstance(memory, tuple) else memory or {}
        return {name: np.asarray(part) for name, part in named.items()}

    def _of(self, sent: Arrays) -> list[str]:
        """The arrays of an update: those of the first round, for averages turn integers into real numbers."""
        return [name for name in self._names if name in sent] or self._updates.names(sent)

    def _matrix(self, sent: Arrays, replies: Iterable[Reply]) -> NDArray[Any]:
        """(m, d) the updates, flat."""
        mine = {name: sent[name] for name in self._names}
        rows = [self._updates.pairs(mine, reply.arrays) for reply in replies]
        kind = np.result_type(np.float32, *(sent[name].dtype for name in self._names))
        matrix = np.empty((len(rows), sum(sent[name].size for name in self._names)), kind)
        for row, pairs in zip(matrix, rows, strict=True):
            at = 0
            for before, after in pairs:
                np.subtract(before, after, out=row[at : at + after.size].reshape(after.shape), casting="same_kind")
                at += after.size
        return matrix

    def _means(
        self, sent: Arrays, replies: Sequence[Reply], names: set[str], shares: Floats
    ) -> dict[str, NDArray[Any]]:
        """The mean of each array that is no part of an update, where all sent it; integers stay integers."""
        made = {}
        for name, array in sent.items():
            found = [reply.arrays.get(name) for reply in replies]
            if name in names or array.dtype.kind not in "biuf":
                continue
            if any(one is None or one.shape != array.shape for one in found):
                continue
            mean = sum((share * one.astype(np.float64) for share, one in zip(shares, found, strict=True)), 0.0)  # type: ignore[union-attr]
            whole = mean + array if self._updates.difference else mean
            made[name] = np.asarray(np.rint(whole) if array.dtype.kind != "f" else whole).astype(array.dtype)
        return made

    def _say(self, clients: int, parameters: int) -> None:
        size = sum(part.nbytes for part in self._parts().values())
        if size >= 2 * self._said and size:
            text = "equifl: %s keeps %.1f MiB for %d clients and %d parameters, in memory and in each checkpoint"
            self._log.info(text, type(self.rule).__name__, size / 2**20, clients, parameters)
            self._said = size


def _table(rule: Aggregator) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if is_dataclass(rule):
        given = {field.name: getattr(rule, field.name) for field in fields(rule)}
    tables = {key: _table(one) if isinstance(one, Aggregator) else options_of(one) for key, one in given.items()}
    return {"class": type(rule).__name__, **tables}
