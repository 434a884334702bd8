"""What a wrapped strategy keeps between rounds, as arrays of a checkpoint; and its settings, to be compared."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common import Parameters
from numpy.typing import NDArray

from equifl.flower.wrapped import chain, inner_of
from equifl.hosts.journal import plain, qualified_name

log = logging.getLogger("flwr")

_KEY = "strategy"
# Set anew in every round, from what is sent then.
_OF_A_ROUND = {"current_arrays", "current_bst", "current_round_params", "pre_weights", "_pending_events"}
_GIVEN = "strategy.given"
_DATA = (np.ndarray, ArrayRecord, Parameters, bytes)


class StrategyState:
    """The state of a strategy and of those that it wraps: what is kept in their attributes and changes.

    Settings are the values that its attributes have now, before the first round. Its state is whatever has another
    value later: numbers, text, arrays, lists and tables of them, and what has a `state_dict` and a `load_state_dict`,
    as a privacy accountant has. A strategy that has both itself decides what its state is.

    What is bound in `functools.partial`, and private attributes, are in checkpoints, by a checksum. `load` refuses
    other bound values. It warns of other private attributes, which may differ by construction, as a time does; not of
    those of a strategy that decides itself. Arrays and objects of other kinds are not compared.
    """

    def __init__(self, strategy: Any) -> None:
        self._parts = _named(strategy)
        self.settings = {name: dict(_settings(part)) for name, part in self._parts.items()}
        bound = [(f"{name}.{field}", crc) for name, part in self._parts.items() for field, crc in _bound(part)]
        self._bound, self._private = dict(bound), dict(self._private_now())
        # Arrays that are there from the beginning may be data, and large: only if they change they are state.
        self._first = {
            (name, field): _digest(value)
            for name, part in self._parts.items()
            for field, value in _attributes(part)
            if field not in self.settings[name] and not _restores(value)
        }
        self._told = False

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as plain arrays."""
        arrays: list[NDArray[Any]] = []
        unsaved: list[str] = []
        saved: dict[str, Any] = {}
        for name, part in self._parts.items():
            saved[name] = {}
            for field, value in [("", part)] if _restores(part) else _attributes(part):
                first = self._first.get((name, field))
                if not _is_state(value, self.settings[name].get(field)) or (first and first == _digest(value)):
                    continue
                before = len(arrays)
                try:
                    saved[name][field] = _encoded(value, arrays)
                except TypeError as error:
                    del arrays[before:]
                    unsaved.append(f"{name}{'.' if field else ''}{field} ({error})")
        if unsaved and not self._told:
            self._told = True
            advice = "if they change, give the strategy `state_dict` and `load_state_dict`"
            log.warning("equifl: checkpoints do not hold %s; %s", ", ".join(unsaved), advice)
        texts = {_KEY: np.array(json.dumps(saved)), _GIVEN: np.array(json.dumps(self._private | self._bound))}
        return texts | {f"{_KEY}.{i}": array for i, array in enumerate(arrays)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; ValueError if that cannot be, or partial functions bind others."""
        name, taken = "the strategy", set[str]()
        try:
            given = json.loads(str(state[_GIVEN])) if _GIVEN in state else {}  # earlier versions did not compare them
            saved = json.loads(str(state[_KEY]))
            for name, part in self._parts.items():
                for field, value in saved[name].items():
                    now = getattr(part, field, None) if field else part
                    restored = _decoded(value, now, state)
                    if restored is not part:
                        setattr(part, field, restored)
                    self._first.pop((name, field), None)  # it is state from now on, also if it changes no more
                    taken.add(f"{name}.{field}")
        except KeyError as error:
            raise ValueError(f"checkpoint: the strategy's state lacks {error}") from None
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"checkpoint: the state of {name} cannot be restored: {error}") from None
        if changed := _changed(self._bound, given):
            raise ValueError(f"strategy: {', '.join(changed)} had another value there; give the strategy the same one")
        self._warn(given, taken)

    def _warn(self, given: Mapping[str, int], restored: set[str]) -> None:
        """Of private attributes that are others than when the run began, unless they are those of the checkpoint."""
        now, here = dict(self._private_now()), self._private
        changed = [name for name in _changed(here, given) if name not in restored or now.get(name) != here[name]]
        for whose, names in (("the checkpoint's", restored), ("the present one", set(changed) - restored)):
            if found := [name for name in changed if name in names]:
                text = "equifl: %s had another value when the run began; it goes on with %s"
                log.warning(text, ", ".join(found), whose)

    def _private_now(self) -> Iterator[tuple[str, int]]:
        for name, part in self._parts.items():
            if not _restores(part):
                yield from ((f"{name}.{field}", crc) for field, crc in _private(part))


def _changed(here: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    return [name for name, crc in here.items() if there.get(name, crc) != crc]


def _named(strategy: Any) -> dict[str, Any]:
    """The strategy and those that it wraps, by the names of their classes."""
    found: dict[str, Any] = {}
    for part in chain(strategy):
        name = type(part).__name__
        found[name if name not in found else f"{name} {len(found) + 1}"] = part
    return found


def _attributes(part: Any) -> Iterator[tuple[str, Any]]:
    skipped = _OF_A_ROUND if inner_of(part) is None else _OF_A_ROUND | {"strategy"}
    for field, value in sorted(getattr(part, "__dict__", {}).items()):
        if field not in skipped:
            yield field, value


def _settings(part: Any) -> Iterator[tuple[str, Any]]:
    for field, value in _attributes(part):
        if not field.startswith("_") and not isinstance(value, _DATA):
            try:
                yield field, _plain(value)
            except TypeError:  # it holds arrays
                continue


def _bound(part: Any) -> Iterator[tuple[str, int]]:
    """Checksums of what is bound in partial functions, which no configuration shows."""
    for field, value in _attributes(part):
        if not (field.startswith("_") and _restores(part)) and (found := list(_partials(value))):
            yield field, _checksum([_expanded(one, ()) for one in found])


def _private(part: Any) -> Iterator[tuple[str, int]]:
    """Checksums of private attributes that are plain values or functions."""
    for field, value in _attributes(part):
        comparable = not isinstance(value, _DATA) and (not _is_opaque(value) or hasattr(value, "__qualname__"))
        if field.startswith("_") and comparable and not any(_partials(value)):
            try:
                yield field, _checksum(_plain(value))
            except TypeError:  # it holds arrays
                continue


def _checksum(value: Any) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _partials(value: Any, above: tuple[int, ...] = ()) -> Iterator[partial[Any]]:
    """The partial functions in lists and tables."""
    if isinstance(value, partial):
        yield value
    elif isinstance(value, list | tuple | dict) and id(value) not in above:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _partials(each, (*above, id(value)))


def _expanded(value: Any, above: tuple[int, ...]) -> Any:
    """A partial function with what it binds; anything else that is no plain value by the name of its type."""
    if not isinstance(value, partial):
        return qualified_name(value)
    return plain([value.func, value.args, value.keywords], _expanded, above)


def _digest(value: Any) -> int | None:
    """Of a value with its arrays; None for what has no such form."""
    arrays: list[NDArray[Any]] = []
    try:
        crc = zlib.crc32(json.dumps(_encoded(value, arrays)).encode())
    except TypeError:
        return None
    for array in arrays:
        crc = zlib.crc32(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes(), crc)
    return crc


def _is_state(value: Any, setting: Any) -> bool:
    if _restores(value) or isinstance(value, _DATA):
        return True
    if callable(value) or isinstance(value, logging.Logger):
        return False
    try:
        return _is_opaque(value) or bool(_plain(value) != setting)
    except TypeError:
        return True


def _restores(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _is_opaque(value: Any) -> bool:
    return not isinstance(value, str | int | float | None | list | tuple | dict | set | np.generic | Path | Enum)


def _plain(value: Any) -> Any:
    """A setting as JSON has it; what is no plain value by the name of its type. TypeError for arrays."""

    def named(value: Any, _: tuple[int, ...]) -> str:
        if isinstance(value, _DATA):
            raise TypeError
        return qualified_name(value)

    return plain(value, named)


def _encoded(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """A value as JSON, with its arrays appended to `arrays`; TypeError, with its type, for what has no such form."""

    def kept(array: NDArray[Any]) -> int:
        if array.dtype.hasobject:
            raise TypeError("an array of objects")
        arrays.append(array)
        return len(arrays) - 1

    if isinstance(value, np.ndarray):
        return {"array": kept(value)}
    if isinstance(value, np.generic):
        return {"scalar": kept(np.asarray(value))}
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, bytes):
        return {"bytes": kept(np.frombuffer(value, np.uint8))}
    if isinstance(value, ArrayRecord):
        return {"arrays": [[name, kept(array.numpy())] for name, array in value.items()]}
    if isinstance(value, Parameters):
        return {"parameters": [value.tensor_type, [kept(np.frombuffer(each, np.uint8)) for each in value.tensors]]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key, arrays), _encoded(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple | set):
        return {type(value).__name__: [_encoded(each, arrays) for each in value]}
    if _restores(value):
        return {"state_dict": _encoded(value.state_dict(), arrays)}
    raise TypeError(type(value).__name__)


def _decoded(value: Any, now: Any, state: Mapping[str, NDArray[Any]]) -> Any:
    """What was encoded; `now` is the attribute's present value, which may know how to restore itself."""
    if not isinstance(value, dict):
        return value
    ((kind, given),) = value.items()

    def array(i: int) -> NDArray[Any]:
        return state[f"{_KEY}.{i}"]

    if kind == "array":
        return array(given).copy()
    if kind == "scalar":
        return array(given)[()]
    if kind == "bytes":
        return array(given).tobytes()
    if kind == "arrays":
        return ArrayRecord({name: Array(array(i)) for name, i in given})
    if kind == "parameters":
        return Parameters([array(i).tobytes() for i in given[1]], given[0])
    if kind == "dict":
        return {_decoded(key, None, state): _decoded(each, None, state) for key, each in given}
    if kind == "state_dict":
        now.load_state_dict(_decoded(given, None, state))
        return now
    made = {"list": list, "tuple": tuple, "set": set}[kind]
    return made(_decoded(each, None, state) for each in given)
