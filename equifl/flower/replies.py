"""Reading what nodes sent: a reply is news, or it is set aside with a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, Message
from numpy.typing import NDArray

from equifl.sketch import CountSketch


class SetAsideError(ValueError):
    """A reply that cannot be used; the message says why."""


@dataclass(frozen=True)
class TrainNews:
    """What a node's training told; None for what is not wanted, or not sent."""

    loss: float | None
    update: NDArray[np.float32] | None
    size: float | None
    bytes: int


def metrics_of(reply: Message) -> Mapping[str, Any]:
    """All metrics of a reply, whatever their records are called."""
    return {key: value for record in reply.content.metric_records.values() for key, value in record.items()}


def read_training(
    reply: Message,
    sent: Mapping[str, NDArray[Any]],
    *,
    loss: str,
    size: str,
    needs: frozenset[str],
    sketch: CountSketch,
) -> TrainNews:
    """The news in a training reply to the model `sent`, of which the selector needs losses, updates or both."""
    metrics = metrics_of(reply)
    heard = _number(metrics, loss) if loss in metrics or "losses" in needs else None
    if heard is not None and heard < 0 and "losses" in needs:
        raise SetAsideError(f"{loss} is {heard:g}, below 0")
    trained = _arrays_like(reply, sent)
    if not all(np.isfinite(trained[key]).all() for key in _real(trained)):
        raise SetAsideError("its weights are not finite")
    update = None
    if "updates" in needs:
        # w_k - w_k^(i), tensor by tensor: the whole difference is never held.
        update = sketch(sent[key] - trained[key] for key in _real(trained))
        if not np.isfinite(update).all():
            raise SetAsideError("its update is too large")
    examples = _number(metrics, size) if size in metrics else None
    if examples is not None and examples <= 0:
        raise SetAsideError(f"{size} is {examples:g}")
    return TrainNews(heard, update, examples, sum(array.nbytes for array in trained.values()))


def read_accuracy(reply: Message, key: str) -> float:
    """The accuracy, from 0 to 1, in an evaluation reply."""
    accuracy = _number(metrics_of(reply), key)
    if not 0 <= accuracy <= 1:
        raise SetAsideError(f"{key} is {accuracy:g}, not from 0 to 1")
    return accuracy


def read_answer(reply: Message, sketch: CountSketch | None) -> TrainNews:
    """The news in an answer to a probe, with the gradient if a sketch of it was asked for."""
    metrics = metrics_of(reply)
    loss, size = _number(metrics, "loss"), _number(metrics, "num-examples")
    if loss < 0 or size <= 0:
        raise SetAsideError(f"loss is {loss:g}, num-examples is {size:g}")
    update = None
    if sketch is not None:
        update = np.asarray(metrics.get("sketch", []), np.float32)
        if update.shape != (sketch.length,) or not np.isfinite(update).all():
            raise SetAsideError(f"its sketch is not one of {sketch.length} finite numbers")
    return TrainNews(loss, update, size, 8 * (2 + (0 if update is None else len(update))))


def _arrays_like(reply: Message, sent: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The reply's arrays, if they are of the same names and shapes as those sent."""
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise SetAsideError(f"it has {len(records)} ArrayRecords instead of one")
    if set(records[0]) != set(sent):
        raise SetAsideError("its arrays have other names than those sent")
    arrays = {key: decoded(records[0][key]) for key in sent}
    for key, array in arrays.items():
        if array.shape != sent[key].shape:
            raise SetAsideError(f"its array {key} has shape {array.shape}, not {sent[key].shape}")
    return arrays


def decoded(array: Array) -> NDArray[Any]:
    """What `array.numpy()` gives, read-only, without parsing the same header for every array of every node."""
    data = array.data
    if array.stype != "numpy.ndarray" or data[:8] != b"\x93NUMPY\x01\x00":
        return array.numpy()
    start = 10 + int.from_bytes(data[8:10], "little")
    shape, by_columns, dtype = _layout(data[:start])
    flat = np.frombuffer(data, dtype, offset=start)
    return flat.reshape(shape, order="F" if by_columns else "C")


@lru_cache(maxsize=1024)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    file = BytesIO(header)
    np.lib.format.read_magic(file)
    return np.lib.format.read_array_header_1_0(file)


def _real(arrays: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Names of arrays of real numbers: a count of batches is no part of an update."""
    return (key for key, array in arrays.items() if array.dtype.kind == "f")


def _number(metrics: Mapping[str, Any], key: str) -> float:
    if key not in metrics:
        raise MissingMetricError(key, metrics)
    value = metrics[key]
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise SetAsideError(f"{key} is {value}")
    return float(value)


class MissingMetricError(SetAsideError):
    """A metric that was not sent."""

    def __init__(self, key: str, metrics: Mapping[str, Any]) -> None:
        there = ", ".join(f"`{name}`" for name in sorted(metrics)) or "none"
        super().__init__(f"no metric `{key}` (there: {there})")
