"""Clients that multiply what they report, by factors drawn at random: the guard holds them to twice their share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from equifl import DivFL, PowerOfChoice, Rota, SignalStore, SubTrunc, UnionFL
from equifl.selectors.base import Selector
from equifl.signals import Floats

QUICK = 1
CLIENTS, LIARS, COHORT, ROUNDS, DIMENSIONS = 100, 10, 10, 60, 12
FEW, MANY = 4, 20  # populations; many are played where the mean over few is above what is allowed
SELECTORS: dict[str, Selector] = {
    "power_of_choice": PowerOfChoice(),
    "divfl": DivFL(),
    "subtrunc": SubTrunc(),
    "unionfl": UnionFL(),
    "rota": Rota(),
}


def make(rng: np.random.Generator) -> list[Any]:
    names = list(SELECTORS)
    return [
        {
            "seed": int(rng.integers(2**32)),
            "selector": names[rng.integers(len(names))],
            "factors": {name: _factor(rng) for name in ("updates", "losses", "sizes")},
        }
        for _ in range(3)
    ]


def _factor(rng: np.random.Generator) -> float:
    """1, or from 2 to 1e9."""
    return 1.0 if rng.random() < 0.3 else float(2 * (1e9 / 2) ** rng.random())


def play(steps: list[Any], folder: Path) -> Counter[str]:
    for step in steps:
        for populations in (FEW, MANY):
            honest = _seats(step, dict.fromkeys(step["factors"], 1.0), populations)
            found = _seats(step, step["factors"], populations)
            most = max(1.3 * honest, 2 * LIARS / CLIENTS)
            if found <= most:
                break
        assert found <= most, f"{found:.1%} of the seats, honest {honest:.1%}, at most {most:.1%}"
    return Counter({"federations": len(steps), "rounds": ROUNDS * len(steps)})


def _seats(step: dict[str, Any], factors: dict[str, float], populations: int) -> float:
    """The liars' share of the seats, the mean over so many populations: the seats of one vary too much."""
    selector, shares = SELECTORS[step["selector"]], []
    for repeat in range(populations):
        rng = np.random.default_rng([step["seed"], repeat])
        own = rng.standard_normal((CLIENTS, DIMENSIONS))
        level = rng.lognormal(sigma=0.5, size=CLIENTS)
        store = SignalStore(CLIENTS, guard=True)

        def report(ids: Any, age: int, own: Floats = own, level: Floats = level, rng: Any = rng) -> dict[str, Any]:
            """Honest reports that shrink as the model learns, times the factors of the liars."""
            shrunk = 0.5 + 0.5 * 0.95**age
            updates = shrunk * (own[ids] + 0.3 * rng.standard_normal((len(ids), DIMENSIONS)))
            honest = {"updates": updates, "losses": shrunk * level[ids], "sizes": np.full(len(ids), 600.0)}
            lie = np.where(np.asarray(ids) < LIARS, 1.0, 0.0)
            return {
                name: values * (1 + (factors[name] - 1) * (lie[:, None] if values.ndim == 2 else lie))
                for name, values in honest.items()
            }

        store.observe(np.arange(CLIENTS), **report(np.arange(CLIENTS), 0))
        for t in range(ROUNDS):
            cohort = selector.select(store.signals(t), COHORT, rng=np.random.default_rng([step["seed"], repeat, t]))
            store.observe(cohort, **report(cohort, t), round=t)
        shares.append(store.times_selected[:LIARS].sum() / (COHORT * ROUNDS))
    return float(np.mean(shares))
