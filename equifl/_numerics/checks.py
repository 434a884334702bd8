"""Checks of arguments: a ValueError names the field, the value and what is allowed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from difflib import get_close_matches
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NO_NUMBERS = {"c": "complex", "U": "text", "S": "text", "M": "dates", "m": "durations", "V": "records"}
_SHOWN = 120  # characters of a value, a key or another error that an error shows


def shown(value: object) -> str:
    """A value as errors show it: of a long one the beginning.

    >>> shown([0, 1]), shown("long" * 1000)[-29:]
    ('[0, 1]', 'longlon... (4,002 characters)')
    """
    try:
        return _cut(repr(value))
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits; nested too deeply
        return f"a very long {type(value).__name__}"


def brief(text: object) -> str:
    """A key or another error as errors show it: printable, on one line, and of a long one the beginning."""
    line = " ".join(str(text).split())
    return _cut(line if line.isprintable() else line.encode("unicode_escape").decode())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def require(field: str, value: object, ok: bool | np.bool_, allowed: str) -> None:
    """Raise ValueError unless one value is `ok`.

    >>> require("lam", -1.0, -1.0 >= 0, "0 or more")
    Traceback (most recent call last):
    ValueError: lam: -1.0 is not allowed; allowed: 0 or more
    """
    if not ok:
        raise ValueError(f"{field}: {shown(value)} is not allowed; allowed: {allowed}")


def require_each(
    field: str,
    values: NDArray[Any],
    ok: NDArray[np.bool_],
    allowed: str,
    *,
    ids: NDArray[Any] | None = None,
) -> None:
    """Raise ValueError unless each client's value is `ok`, naming the first wrong by `ids` (default 0, 1, ...)."""
    if ok.all():
        return
    wrong = np.flatnonzero(~ok)
    names = wrong if ids is None else ids[wrong]
    shown = ", ".join(f"client {name} has {values[i]}" for name, i in zip(names[:3], wrong, strict=False))
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    raise ValueError(f"{field}: {shown}{more}; allowed: {allowed}")


def integer(field: str, value: object, *, least: int, most: int | None = None) -> int:
    """The value as an int of at least `least`; 3.0 and True are not integers here."""
    allowed = f"an integer of {least} or more" + ("" if most is None else f", up to {most}")
    require(field, value, not isinstance(value, bool | np.bool_), allowed)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{field}: {shown(value)} is not allowed; allowed: {allowed}") from None
    require(field, value, number >= least and (most is None or number <= most), allowed)
    return number


def plain(field: str, values: ArrayLike) -> NDArray[Any]:
    """The values as an array; a masked one is refused, since its mask would be lost."""
    parts = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise ValueError(
            f"{field}: a masked array is not allowed; allowed: plain arrays; write nan where a value is unknown "
            "(`values.filled(np.nan)`), or leave these clients out"
        )
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of unlike lengths, gradients
        raise ValueError(f"{field}: cannot be read as numbers ({error})") from None


def numbers(field: str, values: ArrayLike, dtype: type | None = None, *, booleans: bool = True) -> NDArray[Any]:
    """The values as an array of numbers; float16, float32 and float64 stay what they are unless `dtype` says."""
    array = plain(field, values)
    wrong = _NO_NUMBERS.get(array.dtype.kind, "")
    if array.dtype.kind == "b" and not booleans:
        wrong = "booleans"
    if array.dtype.kind == "O":
        wrong = next((type(value).__name__ for value in array.flat if not _has_value(value)), "")
    if wrong:
        raise ValueError(f"{field}: cannot be read as numbers ({wrong}); allowed: numbers")
    try:
        if dtype is not None:
            return array.astype(dtype, copy=False)
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{field}: cannot be read as numbers ({error})") from None


def integers(field: str, values: ArrayLike) -> NDArray[np.int64]:
    """The values as int64; whole numbers in another type are taken, 1.5, True and 2^63 are not."""
    array = plain(field, values)
    if array.size == 0 and array.dtype.kind in "iufO":
        return array.astype(np.int64)
    mixed = isinstance(values, list | tuple) and any(isinstance(value, bool | np.bool_) for value in values)
    kind, fits = array.dtype.kind, array.dtype.kind == "i"
    whole = kind in "iuO" and not mixed
    if kind == "f":
        floats = array.astype(np.float64)
        whole = not mixed and bool((np.isfinite(floats) & (floats == np.floor(floats))).all())
        fits = bool((np.abs(floats) < 2.0**63).all())
    elif kind == "u":
        fits = bool((array <= np.iinfo(np.int64).max).all())
    if not (whole and fits):
        require(field, _shortly(array), False, "integers of up to 63 bits" if whole else "integers")
    return array.astype(np.int64, copy=False)


def shaped(field: str, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array, if it has this shape."""
    if array.shape != shape:
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: {shape}")
    return array


def keywords(function: Callable[..., object]) -> tuple[str, ...]:
    """The names that a function takes by keyword only."""
    return tuple(p.name for p in signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)


def known(what: str, given: Collection[str], names: Collection[str]) -> None:
    """Raise ValueError for a name that is not among `names`, and say which was probably meant.

    >>> known("data set", ["minst"], ["digits", "mnist"])
    Traceback (most recent call last):
    ValueError: data set: 'minst' is not known; did you mean 'mnist'? allowed: digits, mnist
    """
    for name in given:
        if name not in names:
            near = get_close_matches(str(name), names, n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{what}: {shown(name)} is not known;{hint} allowed: {', '.join(names) or 'none'}")


def is_number(value: object) -> bool:
    """Whether it can be compared with numbers; True and "0.5" are none here."""
    return isinstance(value, Real) and not isinstance(value, bool)


def number(field: str, value: object, allowed: str, ok: Callable[[float], bool]) -> None:
    """Raise ValueError unless the value is a number that is allowed.

    >>> number("lam", "0.5", "0 or more", lambda lam: lam >= 0)
    Traceback (most recent call last):
    ValueError: lam: '0.5' is not allowed; allowed: a number, 0 or more
    """
    require(field, value, is_number(value), f"a number, {allowed}")
    finite = " and finite" if value == np.inf and ok(np.finfo(float).max) else ""
    require(field, value, ok(value), allowed + finite)  # type: ignore[arg-type]


def generator(rng: np.random.Generator | int | None) -> np.random.Generator:
    """The generator itself, or a new one from a seed; None = a seed from the operating system.

    >>> generator(0).integers(10) == np.random.default_rng(0).integers(10)
    np.True_
    """
    if isinstance(rng, np.random.Generator):
        return rng
    seed = isinstance(rng, int | np.integer) and not isinstance(rng, bool)
    require("rng", rng, rng is None or (seed and rng >= 0), "a numpy.random.Generator, a seed of 0 or more, or None")
    return np.random.default_rng(rng)


def vector(field: str, values: ArrayLike, allowed: str) -> NDArray[np.float64]:
    """The values as float64, if they are a list of at least one."""
    given = numbers(field, values, np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"{field}: shape {given.shape} is not allowed; allowed: {allowed}")
    return given


def _has_value(value: object) -> bool:
    """Whether an object is a number: what float() takes, but for text, dates and booleans."""
    others = str | bytes | bool | np.bool_ | np.character | np.datetime64 | np.timedelta64
    return hasattr(value, "__float__") and not isinstance(value, others)


def _shortly(values: NDArray[Any]) -> str:
    """Enough of an array to recognise it, on one line."""
    few = ", ".join(map(_cut_short, values.flat[:3].tolist()))
    return f"[{few}, ...]" if values.size > 3 else f"[{few}]"


def _cut_short(value: object) -> str:
    huge = isinstance(value, int) and value.bit_length() > 200  # Python refuses to write thousands of digits
    return f"an integer of {value.bit_length()} bits" if huge else str(value)[:60]  # type: ignore[attr-defined]
