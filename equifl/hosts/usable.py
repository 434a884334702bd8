"""Whether what a client sent can be used: its numbers and arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 1e18  # what strategies make of squares must stay far below the float32 maximum, or it is infinite for good
_MOST = 2.0**53  # examples; a float64 cannot count further


class SetAsideError(ValueError):
    """A reply is not usable; the message says why, in one line that may be logged whatever the client sent."""

    def __init__(self, why: str) -> None:
        super().__init__("".join(c if c.isprintable() else " " for c in why[:300]) + ("..." if why[300:] else ""))


class MisfitError(SetAsideError):
    """A reply is not usable because of how the client is written, so no other client's would be."""


class MissingMetricError(MisfitError):
    """A reply lacks a metric."""

    def __init__(self, key: str, metrics: Mapping[str, Any]) -> None:
        there = ", ".join(f"`{name}`" for name in sorted(metrics)) or "none"
        super().__init__(f"no metric `{key}` (there: {there})")


def number(metrics: Mapping[str, Any], key: str) -> float:
    """The metric, as a finite number."""
    if key not in metrics:
        raise MissingMetricError(key, metrics)
    value = metrics[key]
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise SetAsideError(f"{key} is {short(value)}")
    return float(value)


def count(metrics: Mapping[str, Any], key: str) -> float:
    """The metric, as a number of examples or steps."""
    value = number(metrics, key)
    if not 0 < value <= _MOST:
        raise SetAsideError(f"{key} is {value:g}")
    return value


def training_loss(metrics: Mapping[str, Any], key: str, *, needed: bool) -> float | None:
    """The loss that a training reply reports; None where there is none and none is needed."""
    loss = number(metrics, key) if needed or isinstance(metrics.get(key), int | float) else None
    if loss is not None and loss < 0 and needed:
        raise MisfitError(f"{key} is {loss:g}, and a loss must be 0 or more")
    return loss


def accuracy_and_size(metrics: Mapping[str, Any], key: str, size: str) -> tuple[float, float]:
    """The accuracy, from 0 to 1, in the metrics of an evaluation, and the number of examples (default 1)."""
    accuracy = number(metrics, key)
    if not 0 <= accuracy <= 1:
        raise SetAsideError(f"{key} is not from 0 to 1")
    return accuracy, count(metrics, size) if size in metrics else 1.0


def accuracies(
    reported: Mapping[int, Mapping[str, Any]], key: str, size: str
) -> tuple[dict[int, tuple[float, float]], Counter[str]]:
    """Accuracy and number of examples by client, from the metrics of each; and how many do not count, by reason."""
    found: dict[int, tuple[float, float]] = {}
    why: Counter[str] = Counter()
    for client, metrics in reported.items():
        try:
            found[client] = accuracy_and_size(metrics, key, size)
        except SetAsideError as error:
            why[str(error)] += 1
        except Exception as error:  # whatever a client may send
            why[str(SetAsideError(f"it cannot be read: {type(error).__name__}: {error}"))] += 1
    return found, why


def check_array(key: str, array: NDArray[Any], sent: NDArray[Any] | None) -> None:
    """Refuse what cannot be averaged: averages and squares must stay finite, in the type of the array sent as well."""
    kind = array.dtype.kind
    plain = kind in "biuf" and array.dtype.itemsize <= 8  # longer floats differ between machines
    if not plain and (sent is None or array.dtype != sent.dtype):
        raise SetAsideError(f"its array {key} is of type {array.dtype}, not of numbers")
    if kind == "f":
        types = [array.dtype] if sent is None or sent.dtype.kind != "f" else [array.dtype, sent.dtype]
        most = min(LONGEST, *(float(np.finfo(dtype).max) / 2 for dtype in types))
        if not (array.min(initial=0) >= -most and array.max(initial=0) <= most):  # nan is neither
            raise SetAsideError(f"its weights are not finite, or beyond {most:g}")


def all_finite(arrays: Iterable[NDArray[Any]]) -> bool:
    """Whether all numbers of a model are."""
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind in "fc")
