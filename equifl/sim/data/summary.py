"""A summary of a user's .npz file, in lines, before training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl.sim.data.dataset import incomplete_clients
from equifl.sim.data.own_arrays import OWNERS, OwnArrays, read_own
from equifl.sim.data.partition import few_tested

_SHOWN = 10  # classes


@dataclass(frozen=True)
class Summary:
    """Lines that say what there is, and what is wrong, each with what to do; it can be used if nothing is."""

    lines: tuple[str, ...]
    problems: tuple[str, ...]
    natural: bool  # whether it has clients of its own
    regression: bool  # whether its targets are numbers to predict


def summary(path: str | Path) -> Summary:
    """What a file for `data.name = "arrays"` holds: examples, classes, clients; and all that is wrong with it."""
    own = read_own(path)
    kind = own.dtypes.get("y_train")
    regression = kind is not None and kind.kind == "f" and not own.class_names
    own = read_own(path, regression=True) if regression else own
    lines, problems = [], list(own.faults)
    for split, called in (("train", "training"), ("test", "test")):
        x = own.arrays.get(f"x_{split}")
        if x is not None:
            lines.append(f"{called}: {len(x):,} examples of shape {x.shape[1:]}, {_kind(x, own.dtypes[f'x_{split}'])}")
    if "y_train" in own.arrays or "y_test" in own.arrays:
        lines.append(_targets(own) if regression else _classes(own))
    train, test = (own.arrays.get(f"owners_{split}") for split in ("train", "test"))
    if not own.dtypes.keys() & set(OWNERS):
        lines.append("clients: none of its own (no owners_train, owners_test), for any partition but natural")
    elif train is not None and test is not None and train.dtype.kind == test.dtype.kind:
        incomplete = incomplete_clients(train, test)
        lines += _clients(own, train, test)
        problems += [incomplete] if incomplete else []
    natural = train is not None and test is not None
    return Summary(tuple(lines), tuple(problems), natural, regression)


def _kind(x: NDArray[Any], stored: Any) -> str:
    if x.dtype.kind == "i":
        return f"{stored}, {x.min()} to {x.max()}, which stay integers"
    return f"{stored}{'' if stored == x.dtype else ', taken as float32'}, {x.min():.4g} to {x.max():.4g}"


def _targets(own: OwnArrays) -> str:
    y = np.concatenate([own.arrays[name].reshape(-1) for name in ("y_train", "y_test") if name in own.arrays])
    return f"targets: numbers from {y.min():.4g} to {y.max():.4g}, mean {y.mean():.4g}, for task = 'regression'"


def _classes(own: OwnArrays) -> str:
    splits = [split for split in ("train", "test") if f"y_{split}" in own.arrays]
    counts = [np.bincount(own.arrays[f"y_{split}"].ravel(), minlength=len(own.class_names)) for split in splits]
    each = [" + ".join(f"{count:,}" for count in of_class) for of_class in zip(*counts, strict=True)]
    shown = ", ".join(f"{name}: {count}" for name, count in zip(own.class_names[:_SHOWN], each, strict=False))
    more = f", and {len(each) - _SHOWN} more" if len(each) > _SHOWN else ""
    what = "examples" if own.arrays[f"y_{splits[0]}"].ndim == 1 else "positions"
    return f"classes: {len(own.class_names)} ({' + '.join(splits)} {what} of {shown}{more})"


def _clients(own: OwnArrays, train: NDArray[Any], test: NDArray[Any]) -> list[str]:
    names = np.union1d(train, test)
    sizes, tests = (np.bincount(np.searchsorted(names, owners), minlength=len(names)) for owners in (train, test))
    both = (sizes > 0) & (tests > 0)
    lines = [f"clients: {len(names)}, of which {int((~both).sum())} in one split only"]
    figures = {"training examples": sizes, "test examples": tests}
    y = own.arrays.get("y_train")
    if y is not None and y.shape == train.shape and own.class_names:
        pairs = np.unique(np.searchsorted(names, train) * len(own.class_names) + y)
        figures["classes"] = np.bincount(pairs // len(own.class_names), minlength=len(names))
    for what, numbers in figures.items():
        spread = f"{numbers.min()} to {numbers.max()}, median {np.median(numbers):g}"
        lines.append(f"{what} of a client: {spread}")
    right_or_wrong = own.class_names and y is not None and y.ndim == 1
    few = few_tested([tests[both]]) if both.any() and right_or_wrong else ""
    return lines + ([few] if few else [])
