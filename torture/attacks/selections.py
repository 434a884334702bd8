"""Selectors given odd but allowed signals: every choice must be whole, and the same again."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from equifl import DivFL, PowerOfChoice, Rota, Signals, SubTrunc, Uniform, UnionFL
from equifl.selectors.base import Selector

QUICK = 60
SELECTORS: dict[str, Selector] = {
    "uniform": Uniform(),
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
            "n": int(rng.choice([1, 2, 3, 8, 40, 200])),
            "d": int(rng.choice([1, 2, 16, 64])),
            "selector": names[rng.integers(len(names))],
            "unknown": float(rng.choice([0, 0, 0.3, 1])),
            "online": float(rng.choice([0, 0.1, 0.5, 1, 1])),
            "ties": bool(rng.random() < 0.3),
            "round": int(rng.integers(200)),
            "k": int(rng.choice([1, 2, 5, 300])),
        }
        for _ in range(20)
    ]


def play(steps: list[Any], folder: Path) -> Counter[str]:
    for step in steps:
        rng = np.random.default_rng(step["seed"])
        n, k = step["n"], step["k"]
        updates = rng.standard_normal((n, step["d"])).astype(np.float32)
        losses = rng.exponential(size=n)
        if step["ties"]:
            updates[:], losses[:] = updates[0], losses[0]
        unknown = rng.random(n) < step["unknown"]
        updates[unknown], losses[unknown] = np.nan, np.nan
        signals = Signals(
            losses=losses,
            updates=updates,
            sizes=np.exp(3 * rng.standard_normal(n)),
            times_selected=rng.integers(0, 50, n),
            last_selected=rng.integers(-1, step["round"], n),
            available=rng.random(n) < step["online"],
            round=step["round"],
        )
        selector = SELECTORS[step["selector"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer clients than k
            first, again = (selector.select(signals, k, rng=np.random.default_rng(1)) for _ in range(2))
        assert first.tolist() == again.tolist(), "another choice from the same signals"
        assert len(set(first.tolist())) == len(first) == min(k, int(signals.available.sum())), first
        assert signals.available[first].all(), "somebody who is not there"
    return Counter(selections=2 * len(steps))
