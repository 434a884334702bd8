"""Reading what sites send back: a result is usable, or it is set aside with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.app_common.abstract.fl_model import FLModel, MetaKey, ParamsType

from equifl.hosts.updates import Updates
from equifl.hosts.usable import MisfitError, SetAsideError, check_array, count, training_loss
from equifl.sketch import CountSketch

STEPS = str(MetaKey.NUM_STEPS_CURRENT_ROUND)  # by which NVFlare weights results


@dataclass(frozen=True)
class Keys:
    """Names of the metrics."""

    loss: str
    accuracy: str
    size: str


@dataclass(frozen=True)
class TrainResult:
    """What a site reported; None for what is not needed or was not sent."""

    arrays: Mapping[str, NDArray[Any]]
    difference: bool  # whether the arrays are w_k^(i) - w_k, as NVFlare's DIFF is
    weight: float
    loss: float | None
    update: NDArray[np.float32] | None
    size: float | None
    bytes: int
    metrics: Mapping[str, Any]
    reported: Mapping[str, Any]  # the metrics, and the numbers among the meta data
    of_the_other_kind: bool | None = None  # whether whole parameters look like differences; None: it is not known


def site_of(result: FLModel) -> str:
    """The name of the site, as the server wrote it on the result."""
    return str((result.meta or {}).get("client_name", ""))


def read_training(
    result: FLModel, sent: Mapping[str, NDArray[Any]], keys: Keys, needs: frozenset[str], sketch: CountSketch
) -> TrainResult:
    """The contents of a result of training from the model `sent`, as far as the selector needs them."""
    if result.params is None or (isinstance(result.params, Mapping) and not result.params):
        raise MisfitError("it holds no parameters, which a script sends as flare.FLModel(params=...)")
    difference = result.params_type == ParamsType.DIFF
    arrays = arrays_of(result.params)
    others = [key for key in arrays if key not in sent]
    if others:
        raise MisfitError(f"it holds other arrays than were sent: {', '.join(others[:8])}")
    for key, array in arrays.items():
        if array.shape != sent[key].shape:
            raise MisfitError(f"its array {key} has shape {array.shape}, not {sent[key].shape}")
        check_array(key, array, sent[key])
    reported = metrics_of(result)
    loss = training_loss(reported, keys.loss, needed="losses" in needs)
    update = None
    if "updates" in needs:
        # A site may train a part of the model. Its other arrays did not move, and keep their place in the sketch.
        missing = {key: array for key, array in sent.items() if key not in arrays}
        if difference:
            missing = {key: np.broadcast_to(np.zeros((), array.dtype), array.shape) for key, array in missing.items()}
        whole = {key: arrays[key] if key in arrays else missing[key] for key in sent}
        update = Updates(difference=difference).sketch(sent, whole, sketch)
    size = count(reported, keys.size) if keys.size in reported else None
    weight = count(reported, STEPS) if STEPS in reported else 1.0
    received = sum(array.nbytes for array in arrays.values())
    metrics = {key: reported[key] for key in map(str, result.metrics or {})}
    return TrainResult(arrays, difference, weight, loss, update, size, received, metrics, reported)


def arrays_of(params: Any) -> dict[str, NDArray[Any]]:
    """The parameters of a model or a result as arrays, which share the memory of tensors where they can."""
    if not isinstance(params, Mapping):
        raise SetAsideError(f"its parameters are of type {type(params).__name__}, not a table of arrays")
    return {str(key): _array(value) for key, value in params.items()}


def like(value: Any, array: NDArray[Any]) -> Any:
    """An array as a parameter of the same kind as `value`: a tensor, or an array of its type."""
    if hasattr(value, "new_tensor"):
        return value.new_tensor(array)
    return array.astype(np.asarray(value).dtype, copy=False)


def metrics_of(result: FLModel) -> dict[str, Any]:
    """The metrics of a result, and the numbers among its meta data, as plain numbers."""
    both = {**(result.meta or {}), **(result.metrics or {})}
    return {str(key): _plain(value) for key, value in both.items()}


def _array(value: Any) -> NDArray[Any]:
    if callable(getattr(value, "materialize", None)):  # NVFlare left it on the disk
        value = value.materialize()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # which NumPy lacks
            value = value.float()
    return np.asarray(value)


def _plain(value: Any) -> Any:
    """A number of NumPy or torch as one of Python."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):  # no number of theirs, or several
        return value
