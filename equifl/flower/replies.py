"""Reading replies: a reply is usable, or it is set aside with a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from reprlib import repr as short
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from equifl.flower.forms import Arrays, Form, Layout, form_of
from equifl.flower.wrapped import Reads
from equifl.hosts.updates import Updates
from equifl.hosts.usable import (
    LONGEST,
    SetAsideError,
    all_finite,
    check_array,
    count,
    number,
    training_loss,
)
from equifl.sketch import CountSketch

Read = TypeVar("Read")


@dataclass(frozen=True)
class TrainNews:
    """What a node reported; None for what is not needed or was not sent."""

    loss: float | None
    update: NDArray[np.float32] | None
    size: float | None
    bytes: int
    form: Form | None = None
    same_types: bool = True  # whether its arrays have the types of those sent
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)  # views of the reply's bytes


def sorted_out(
    replies: Iterable[Message], read: Callable[[Message], Read]
) -> tuple[dict[int, Read], dict[int, SetAsideError]]:
    """What `read` makes of each reply, by node, and why the other replies are not usable.

    Here alone a reply becomes a value of ours: whatever a client sends and whatever `read` raises, only that reply is
    lost.
    """
    found: dict[int, Read] = {}
    aside: dict[int, SetAsideError] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        try:
            if reply.has_error():
                raise SetAsideError(f"it reports an error: {reply.error.reason}")
            found[node] = read(reply)
        except SetAsideError as error:
            aside[node] = error
        except Exception as error:  # bytes that anybody may send: NumPy and Flower raise whatever they like
            aside[node] = SetAsideError(f"it cannot be read: {type(error).__name__}: {error}")
    return found, aside


def first_of_each(replies: Iterable[Message], sent: Collection[Message]) -> tuple[dict[int, Message], list[int]]:
    """The first reply of each node to these messages, and the nodes of the others: late, repeated or to another."""
    asked = {message.metadata.dst_node_id for message in sent}
    ids = {message.metadata.message_id for message in sent} - {""}
    first: dict[int, Message] = {}
    ignored: list[int] = []
    for reply in replies:
        node = reply.metadata.src_node_id
        to_these = not ids or reply.metadata.reply_to_message_id in ids
        if to_these and node in asked and node not in first:
            first[node] = reply
        else:
            ignored.append(node)
    return first, ignored


def metrics_of(reply: Message) -> Mapping[str, Any]:
    """All metrics of a reply, whatever their records are called."""
    return {key: value for record in reply.content.metric_records.values() for key, value in record.items()}


def read_training(
    reply: Message,
    sent: Mapping[str, NDArray[Any]],
    layout: Layout,
    *,
    loss: str,
    size: str,
    needs: frozenset[str],
    reads: Reads,
    updates: Updates,
    sketch: CountSketch,
) -> TrainNews:
    """The contents of a training reply to the model `sent`, as far as the selector and the strategy need them."""
    metrics = metrics_of(reply)
    named = _checked_arrays(reply, sent, reads)
    arrays = {key: array for record in named.values() for key, array in record.items()}
    local_loss = training_loss(metrics, loss, needed="losses" in needs)
    update = updates.sketch(sent, arrays, sketch) if "updates" in needs else None
    examples = count(metrics, size) if isinstance(metrics.get(size), int | float) else None
    form = form_of(reply.content, named, layout)
    if reads.equal_weights and reads.weight is not None:
        form = form._replace(weight=count(metrics, reads.weight))
    same_types = all(array.dtype == sent[key].dtype for key, array in arrays.items() if key in sent)
    size_of_all = sum(array.nbytes for array in arrays.values())
    return TrainNews(local_loss, update, examples, size_of_all, form, same_types, arrays)


def seems_usable(reply: Message, sent: ArrayRecord, layout: Layout, loss: str | None, reads: Reads) -> bool:
    """Whether a training reply has the arrays that were sent, finite, and the metrics that are read, by itself."""

    def read(reply: Message) -> None:
        named = _checked_arrays(reply, {key: decoded(array) for key, array in sent.items()}, reads)
        if reads.averages and form_of(reply.content, named, layout).odd:
            raise SetAsideError("it holds other records or arrays than were sent")
        if loss is not None:
            training_loss(metrics_of(reply), loss, needed=True)

    return bool(sorted_out([reply], read)[0])


def _checked_arrays(reply: Message, sent: Mapping[str, NDArray[Any]], reads: Reads) -> Arrays:
    """The arrays of a training reply, if these and what the strategy reads of its metrics can be averaged."""
    named = arrays_of(reply)
    for record in named.values():
        for key, array in record.items():
            check_array(key, array, sent.get(key))
    metrics = metrics_of(reply)
    _check_metrics(metrics, reads.weight, reads.loss)
    for name in reads.others:
        number(metrics, name)
    return named


def arrays_of(message: Message) -> Arrays:
    """All arrays of a message, by record and name."""
    records = message.content.array_records
    return {name: {key: decoded(array) for key, array in record.items()} for name, record in records.items()}


def _check_metrics(metrics: Mapping[str, Any], weight: str | None, loss: str | None = None) -> None:
    """Refuse what the wrapped strategy cannot average: its weight, its loss, integers beyond the floats."""
    for value in metrics.values():
        np.asarray(value, np.float64)
    if weight is not None:
        count(metrics, weight)
    if loss is not None and number(metrics, loss) < 0:
        raise SetAsideError(f"{loss} is below 0")


def form_of_evaluation(reply: Message, weight: str | None) -> Form:
    """The form of an evaluation that the wrapped strategy can average."""
    _check_metrics(metrics_of(reply), weight)
    return form_of(reply.content, {}, None)


def read_answer(reply: Message, sketch: CountSketch | None) -> TrainNews:
    """The contents of an answer to a probe, with the gradient if its sketch was requested."""
    metrics = metrics_of(reply)
    loss, size = number(metrics, "loss"), count(metrics, "num-examples")
    if loss < 0:
        raise SetAsideError(f"loss is {loss:g}")
    update = None
    if sketch is not None:
        update = np.asarray(metrics.get("sketch", []), np.float32)
        if update.shape != (sketch.length,) or not np.abs(update).max() < LONGEST:
            raise SetAsideError(f"its sketch is not one of {sketch.length} numbers of ordinary size")
    return TrainNews(loss, update, size, 8 * (2 + (0 if update is None else len(update))))


def decoded(array: Array) -> NDArray[Any]:
    """`array.numpy()`, read-only, with the parsed headers cached; stricter about what the bytes must be."""
    data = array.data
    if array.stype != "numpy.ndarray" or data[:8] != b"\x93NUMPY\x01\x00":
        raise SetAsideError(f"an array of serialisation type {short(array.stype)} is not as NumPy writes it")
    start = 10 + int.from_bytes(data[8:10], "little")
    shape, by_columns, dtype = _layout(data[:start])
    flat = np.frombuffer(data, dtype, offset=start) if len(data) > start else np.empty(0, dtype)
    whole = flat.reshape(shape, order="F" if by_columns else "C")
    if whole.shape != shape or whole.dtype != dtype:  # a length of -1, an array of arrays
        raise SetAsideError(f"an array has the impossible shape {shape} or type {dtype}")
    return whole


@lru_cache(maxsize=1024)
def _layout(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    file = BytesIO(header)
    np.lib.format.read_magic(file)
    return np.lib.format.read_array_header_1_0(file)


def bytes_of(arrays: ArrayRecord) -> int:
    """The size of a model in bytes."""
    return sum(decoded(array).nbytes for array in arrays.values())


def is_finite(arrays: ArrayRecord) -> bool:
    """Whether all numbers of a model are."""
    return all_finite(map(decoded, arrays.values()))
