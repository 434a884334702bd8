"""Reading replies: a reply is usable, or it is set aside with a reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from equifl.sketch import CountSketch

log = logging.getLogger("flwr")

_LONGEST = 1e25  # squares of differences must stay far below the float32 maximum


class SetAsideError(ValueError):
    """A reply is not usable; the message says why."""


class MisfitError(SetAsideError):
    """A reply is not usable because of how the client is written, so no other client's would be."""


@dataclass(frozen=True)
class TrainNews:
    """What a node reported; None for what is not needed or was not sent."""

    loss: float | None
    update: NDArray[np.float32] | None
    size: float | None
    bytes: int


def metrics_of(reply: Message) -> Mapping[str, Any]:
    """All metrics of a reply, whatever their records are called."""
    return {key: value for record in reply.content.metric_records.values() for key, value in record.items()}


def read_training(
    reply: Message,
    metrics: Mapping[str, Any],
    sent: Mapping[str, NDArray[Any]],
    *,
    loss: str,
    size: str,
    needs: frozenset[str],
    sketch: CountSketch,
) -> TrainNews:
    """The contents of a training reply to the model `sent`, as far as the selector needs them."""
    arrays = {key: decoded(array) for record in reply.content.array_records.values() for key, array in record.items()}
    if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
        raise SetAsideError("its weights are not finite")
    local_loss = _number(metrics, loss) if "losses" in needs or isinstance(metrics.get(loss), int | float) else None
    if local_loss is not None and local_loss < 0 and "losses" in needs:
        raise MisfitError(f"{loss} is {local_loss:g}, and a loss must be 0 or more")
    update = _update(sent, arrays, sketch) if "updates" in needs else None
    examples = _number(metrics, size) if isinstance(metrics.get(size), int | float) else None
    if examples is not None and examples <= 0:
        raise SetAsideError(f"{size} is {examples:g}")
    return TrainNews(local_loss, update, examples, sum(array.nbytes for array in arrays.values()))


def _update(
    sent: Mapping[str, NDArray[Any]], trained: Mapping[str, NDArray[Any]], sketch: CountSketch
) -> NDArray[np.float32]:
    """The sketch of w_k - w_k^(i), computed tensor by tensor, so that the whole difference is never in memory.

    It uses the floating-point arrays that were sent and returned: counters are no part of an update, and some clients
    train only a part of the model.
    """
    keys = [key for key, array in sent.items() if array.dtype.kind == "f" and key in trained]
    if not any(sent[key].size for key in keys):
        raise MisfitError(
            "it returned none of the floating-point arrays that were sent, from which updates are computed"
        )
    for key in keys:
        if trained[key].shape != sent[key].shape:
            raise MisfitError(f"its array {key} has shape {trained[key].shape}, not {sent[key].shape}")
    wide = (np.result_type(sent[key], np.float32) for key in keys)
    update = sketch(np.subtract(sent[key], trained[key], dtype=dtype) for key, dtype in zip(keys, wide, strict=True))
    if not np.abs(update).max() < _LONGEST:
        raise SetAsideError("its update is too long")
    return update


def read_evaluation(metrics: Mapping[str, Any], key: str, size: str) -> tuple[float, float]:
    """The accuracy, from 0 to 1, in the metrics of an evaluation, and the number of examples (default 1)."""
    accuracy = _number(metrics, key)
    if not 0 <= accuracy <= 1:
        raise SetAsideError(f"{key} is not from 0 to 1")
    examples = _number(metrics, size) if size in metrics else 1.0
    if examples <= 0:
        raise SetAsideError(f"{size} is not above 0")
    return accuracy, examples


def read_answer(reply: Message, sketch: CountSketch | None) -> TrainNews:
    """The contents of an answer to a probe, with the gradient if its sketch was requested."""
    metrics = metrics_of(reply)
    loss, size = _number(metrics, "loss"), _number(metrics, "num-examples")
    if loss < 0 or size <= 0:
        raise SetAsideError(f"loss is {loss:g}, num-examples is {size:g}")
    update = None
    if sketch is not None:
        update = np.asarray(metrics.get("sketch", []), np.float32)
        if update.shape != (sketch.length,) or not np.abs(update).max() < _LONGEST:
            raise SetAsideError(f"its sketch is not one of {sketch.length} numbers of ordinary size")
    return TrainNews(loss, update, size, 8 * (2 + (0 if update is None else len(update))))


def decoded(array: Array) -> NDArray[Any]:
    """`array.numpy()`, read-only, with the parsed headers cached."""
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


def _number(metrics: Mapping[str, Any], key: str) -> float:
    if key not in metrics:
        raise MissingMetricError(key, metrics)
    value = metrics[key]
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise SetAsideError(f"{key} is {value}")
    return float(value)


class MissingMetricError(MisfitError):
    """A reply lacks a metric."""

    def __init__(self, key: str, metrics: Mapping[str, Any]) -> None:
        there = ", ".join(f"`{name}`" for name in sorted(metrics)) or "none"
        super().__init__(f"no metric `{key}` (there: {there})")


def first_of_each(replies: Iterable[Message], asked: Iterable[int] | None) -> Iterator[Message]:
    """The first reply of each node asked; late and repeated ones are dropped with a warning."""
    left = None if asked is None else set(asked)
    seen: set[int] = set()
    for reply in replies:
        node = reply.metadata.src_node_id
        if node in seen or (left is not None and node not in left):
            log.warning("equifl: a reply of node %d came late or twice: ignored", node)
            continue
        seen.add(node)
        yield reply


def bytes_of(arrays: ArrayRecord) -> int:
    """The size of a model in bytes."""
    return sum(decoded(array).nbytes for array in arrays.values())
