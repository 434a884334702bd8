"""Selectors given extreme updates: none may stop, and neither the common scale nor an outlier may matter."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from equifl import DivFL, PowerOfChoice, Rota, Signals, SubTrunc, Uniform, UnionFL
from equifl.selectors.base import Selector
from equifl.signals import Bools, Floats, Ints

QUICK = 12
SCALE_FREE: dict[str, Selector] = {
    "uniform": Uniform(),
    "power_of_choice": PowerOfChoice(),
    "divfl": DivFL(),
    "divfl, sampled": DivFL(sample=5),
    "divfl, streamed": DivFL(memory_limit=2**12),
    "subtrunc, relative": SubTrunc(scale="relative"),
    "unionfl, relative": UnionFL(inner=DivFL(scale="relative")),
    "rota": Rota(),
}
SELECTORS: dict[str, Selector] = SCALE_FREE | {"subtrunc": SubTrunc(), "unionfl": UnionFL()}
LEAST, MOST = {"float16": -24, "float32": -149, "float64": -1074}, {"float16": 15, "float32": 127, "float64": 1023}


def make(rng: np.random.Generator) -> list[Any]:
    def one(values: Any) -> Any:
        return values[rng.integers(len(values))]

    steps: list[Any] = []
    for _ in range(10):
        case = {
            "seed": int(rng.integers(2**32)),
            "n": one([2, 3, 10, 60, 300]),
            "d": one([1, 3, 20]),
            "k": one([1, 3, 10]),
        }
        case["outliers"] = one([0, 0, 0.02, 0.2, 0.45])
        steps.append(
            case
            | {"attack": "any", "dtype": one(list(LEAST)), "selector": one(list(SELECTORS))}
            | {"exponents": rng.integers(-1080, 1030, 3).tolist(), "given": one(["updates", "updates", "distances"])}
        )
        steps.append(
            case
            | {"attack": "scale", "dtype": one(["float32", "float64"]), "selector": one(list(SCALE_FREE))}
            | {
                "exponent": int(rng.integers(-95, 96)),
                "outlier": int(rng.integers(11, 20)),
                "given": steps[-1]["given"],
            }
        )
    same = bool(rng.random() < 0.5)  # else they point anywhere, and many of them are balanced instead of the others
    steps.append(
        {
            "attack": "balance",
            "seed": int(rng.integers(2**32)),
            "outliers": one([1, 3, 20, 45] if same else [1, 3, 20]),
        }
        | {
            "exponent": int(rng.integers(13, 115)),
            "same": same,
            "given": one(["updates", "distances"]),
        }
    )
    return steps


def play(steps: list[Any], folder: Path) -> Counter[str]:
    counts = Counter[str]()
    for step in steps:
        counts[{"any": "extreme", "scale": "scaled", "balance": "unbalanced"}[step["attack"]] + " selections"] += 1
        {"any": any_numbers, "scale": common_scale, "balance": balance}[step["attack"]](step)
    return counts


def any_numbers(step: dict[str, Any]) -> None:
    """Three groups of clients, each of another magnitude, as far as the type goes."""
    rng, dtype = np.random.default_rng(step["seed"]), step["dtype"]
    updates = rng.standard_normal((step["n"], step["d"]))
    exponents = np.clip(np.array(step["exponents"]), LEAST[dtype], MOST[dtype] - 6)  # a row must not sum to infinity
    group = rng.choice(3, step["n"], p=[0.6 - step["outliers"] / 2, 0.4 - step["outliers"] / 2, step["outliers"]])
    updates = np.ldexp(np.clip(updates, -3.9, 3.9), exponents[group][:, None]).astype(dtype)
    whole(step["selector"], signals_of(updates, step["given"], step["seed"]), step["k"])


def common_scale(step: dict[str, Any]) -> None:
    """All updates times a power of two: the same cohort."""
    rng = np.random.default_rng(step["seed"])
    updates = rng.standard_normal((step["n"], step["d"]))
    updates[rng.random(step["n"]) < step["outliers"]] *= 2.0 ** step["outlier"]
    updates = updates.astype(step["dtype"])
    first, second = (
        whole(step["selector"], signals_of(np.ldexp(updates, e), step["given"], step["seed"]), step["k"])
        for e in (0, step["exponent"])
    )
    assert first.tolist() == second.tolist(), f"{first} at scale 1, {second} at 2^{step['exponent']}"


def balance(step: dict[str, Any]) -> None:
    """Cohorts of Rota: their honest members are nearer to the mean of the honest clients than random ones."""
    ours, random = [], []
    for seed in range(8):
        rng = np.random.default_rng([step["seed"], seed])
        updates = rng.standard_normal((100, 16))
        others = rng.permutation(100) >= step["outliers"]
        sent = updates.copy()
        sent[~others] = np.ldexp(updates[~others][:1] if step["same"] else updates[~others], step["exponent"])
        signals = signals_of(sent.astype(np.float32), step["given"], seed)
        ours.append(imbalance(whole("rota", signals, 10), updates, others))
        random += [imbalance(Uniform().select(signals, 10, rng=draw), updates, others) for draw in range(10)]
    assert np.mean(ours) < np.mean(random), f"{np.mean(ours):.3f}, random {np.mean(random):.3f}"


def imbalance(cohort: Ints, updates: Floats, others: Bools) -> float:
    """|sum over honest members of (u - mean)|^2, for each of them: the same for any number of random ones."""
    members = cohort[others[cohort]]
    off = (updates[members] - updates[others].mean(axis=0)).sum(axis=0)
    return float((off**2).sum()) / max(1, len(members))


def signals_of(updates: Floats, given: str, seed: int) -> Signals:
    rng, n = np.random.default_rng(seed), len(updates)
    arrays: dict[str, Any] = {"updates": updates}
    if given == "distances":
        scale = float(np.abs(updates).max()) or 1.0
        part = updates.astype(np.float64) / 2.0 ** np.floor(np.log2(scale))
        arrays = {
            "distances": np.ldexp(np.linalg.norm(part[:, None] - part, axis=2), int(np.floor(np.log2(scale))) - 6)
        }
    return Signals(losses=rng.random(n), last_selected=rng.integers(-1, 9, n), round=9, **arrays)


def whole(selector: str, signals: Signals, k: int) -> Ints:
    """The cohort, which must be whole; overflow must not be silent either."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", message="k = ")
        cohort = SELECTORS[selector].select(signals, k, rng=np.random.default_rng(1))
    assert len(set(cohort.tolist())) == len(cohort) == min(k, signals.n), cohort
    return cohort
