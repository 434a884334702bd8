"""A store given news of every kind: what is refused must leave it as it was, what is taken must be there after."""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from equifl import Rota, SignalStore
from equifl.sketch import CountSketch

QUICK = 60
NUMBERS = [0, 1, 2, -1, 0.5, 1e-45, 1e19, 1e31, 3e38, 1e300, math.inf, math.nan, 2**62, 2**63, 2**70, True]
NO_NUMBERS: list[Any] = ["1", "text", None, [], "2024-01-01"]
KINDS = ["list", "array", "float16", "float32", "uint64", "masked", "text", "date", "duration", "object", "complex"]
SHAPES = ["one each", "one each", "one each", "one less", "one more", "one a row", "nothing"]


def make(rng: np.random.Generator) -> list[Any]:
    def one(values: list[Any]) -> Any:
        return values[rng.integers(len(values))]

    def news() -> dict[str, Any]:
        odd = rng.random() < 0.5
        return {
            "kind": one(KINDS) if odd else "list",
            "shape": one(SHAPES) if odd else "one each",
            "values": [one(NUMBERS + NO_NUMBERS if odd else [0.5, 1, 2, 3]) for _ in range(4)],
        }

    steps: list[Any] = []
    for _ in range(40):
        call = one(["observe"] * 6 + ["signals", "grow", "forget", "load"])
        step: dict[str, Any] = {"call": call, "ids": rng.permutation(7)[: rng.integers(1, 4)].tolist()}
        if rng.random() < 0.15:
            step["ids"] = one([[0, 0], [99], [-1], [2**63], [2**70], [1.5], ["0"], [True, 1], 3, None])
        step["kind of ids"] = one(["list", "list", "array", "masked", "date"]) if rng.random() < 0.2 else "list"
        for name in ("losses", "updates", "sizes", "available"):
            if rng.random() < 0.5:
                step[name] = news()
        if rng.random() < 0.5:
            step["round"] = int(rng.integers(9)) if rng.random() < 0.6 else one(NUMBERS + NO_NUMBERS)
        step["clients"] = int(rng.integers(6, 12)) if rng.random() < 0.6 else one(NUMBERS + NO_NUMBERS)
        steps.append(step)
    return [{"guard": bool(rng.random() < 0.3), "sketch": bool(rng.random() < 0.3)}, *steps]


def play(steps: list[Any], folder: Path) -> Counter[str]:
    counts, options = Counter[str](), {"guard": False, "sketch": False} | (steps[0] if "guard" in steps[0] else {})
    store = SignalStore(6, guard=options["guard"], sketch=CountSketch(length=2) if options["sketch"] else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's on values that are too large; that nobody is known yet
        for step in steps:
            if "call" in step:
                counts += played(store, step)
    return counts


def played(store: SignalStore, step: dict[str, Any]) -> Counter[str]:
    """Carry out one step: all of it or nothing."""
    before, refused = copy.deepcopy(vars(store)), ""
    try:
        require_there(store, step, called(store, step))
    except ValueError as error:
        refused = str(error)
        assert re.match(r"\w[\w ]*:", refused), f"refused without a name: {refused}"
        require_same(vars(store), before)
    signals = store.signals(2**63 - 1)  # never broken, whatever was taken
    assert len(Rota().select(signals, 1, rng=0)) == min(1, int(signals.available.sum()))
    return Counter(operations=1, refused=int(bool(refused)))


def called(store: SignalStore, step: dict[str, Any]) -> dict[str, Any]:
    """Make the call; returns the arguments it took."""
    ids = given(step["ids"], step["kind of ids"])
    rows = len(step["ids"]) if isinstance(step["ids"], list) else 1
    wide: dict[str, Any] = {
        name: argument(step[name], rows, name) for name in ("losses", "updates", "sizes", "available") if name in step
    }
    if step["call"] == "observe":
        store.observe(ids, round=step.get("round"), **wide)
        return wide
    if step["call"] == "signals":
        who = argument(step["available"], len(store), "available") if "available" in step else None
        store.signals(step.get("round", 2**62), available=who)
    elif step["call"] == "grow":
        store.grow(step["clients"])
    elif step["call"] == "forget":
        store.forget(ids)
    else:
        state: dict[str, Any] = dict(store.state_dict())
        for name in set(step) & {"losses", "sizes", "available"}:
            state[name] = argument(step[name], len(store), name)
        if "round" in step:
            state["progress"] = [step["round"], step["clients"]]
        store.load_state_dict(state)
    return {}


def argument(news: dict[str, Any], rows: int, name: str) -> Any:
    """Values for `rows` clients: of a shape and a kind, right or wrong."""
    n = rows + {"one less": -1, "one more": 1}.get(news["shape"], 0)
    values = [] if news["shape"] == "nothing" else [news["values"][i % 4] for i in range(max(0, n))]
    if name == "available" and news["kind"] == "list" and news["shape"] == "one each":
        values = [value == 1 for value in values]
    if name == "updates" or news["shape"] == "one a row":
        values = [[value, 1.0] for value in values]
    return given(values, news["kind"])


def given(values: Any, kind: str) -> Any:
    """The values as an array of this kind, where numpy can make one of them; else as they are."""
    types = {"text": "U", "date": "M8[D]", "duration": "m8[s]", "object": "O", "complex": "c16", "array": None}
    try:
        with np.errstate(all="ignore"):
            if kind == "masked":
                return np.ma.array(values, mask=False)
            return values if kind == "list" else np.array(values, types.get(kind, kind))
    except (TypeError, ValueError, OverflowError):
        return values


def require_there(store: SignalStore, step: dict[str, Any], taken: dict[str, Any]) -> None:
    """After `observe`: every value that was taken is a number of a plain kind, and stored."""
    for name, values in taken.items():
        assert not isinstance(values, np.ma.MaskedArray), f"{name}: a mask was lost"
        array = np.asarray(values)
        assert array.dtype.kind in ("b" if name == "available" else "iufO"), f"{name}: {array.dtype} was taken"
        wanted = array.astype(np.float64)
        stored = vars(store)[f"_{name}"]
        if len(step["ids"]):
            found = np.asarray(stored[np.asarray(step["ids"], np.int64)], np.float64)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-44)


def require_same(after: dict[str, Any], before: dict[str, Any]) -> None:
    for name, value in before.items():
        np.testing.assert_equal(after[name], value, err_msg=f"{name}: changed by a call that was refused")
