"""Selectors of one's own, as a configuration names them: `class = "tests.own_selector:Mine"`."""

from dataclasses import dataclass

import numpy as np

from equifl import Signals
from equifl.signals import Ints


@dataclass(frozen=True, kw_only=True)
class Mine:
    anything: int = 0

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        return np.flatnonzero(signals.available)[:k]


class Plain:
    needs = frozenset[str]()

    def __init__(self, first: int = 0, inner: object = None) -> None:
        self.first, self.inner = first, inner
        self._calls = 0  # no setting

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        self._calls += 1
        return np.roll(np.flatnonzero(signals.available), -self.first - signals.round)[:k]


class NotADataclass:
    def __init__(self, share: float) -> None:
        if share > 1:
            raise ValueError("nobody has more than all: share is above 1")

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        return np.flatnonzero(signals.available)[:k]


class CannotSelect:
    pass
