"""Arrays that are mapped from files."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from equifl.signals import Floats

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE: a file may be larger than the memory

Mapped: TypeAlias = "np.memmap[Any, np.dtype[Any]]"


def mapping(array: Floats) -> Mapped | None:
    """The memory map of which the whole is this array, if there is one: its file, offset and shape are the array's."""
    owner: Any = array
    whole: Mapped | None = None
    while owner is not None:  # the last map is the whole: a part of it has the file and offset of the whole, too
        whole, owner = owner if isinstance(owner, np.memmap) else whole, getattr(owner, "base", None)
    if whole is None or whole.filename is None or whole.mode == "c":  # what was changed there is not in the file
        return None
    if whole.shape != array.shape or whole.dtype != array.dtype or not array.flags.c_contiguous:
        return None
    return whole if whole.ctypes.data == array.ctypes.data else None


def own_copy(array: Floats) -> Floats:
    """A copy that can be changed. Of a mapped file only the pages that are changed take memory; the file stays.

    >>> own_copy(np.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    mapped = mapping(array)
    if mapped is None or not (path := Path(str(mapped.filename))).exists():
        return array.copy()
    how: dict[str, int] = {"access": mmap.ACCESS_COPY}
    if os.name == "posix":
        how = {"flags": mmap.MAP_PRIVATE | _NO_RESERVE}
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), mapped.offset + mapped.nbytes, **how)
    return np.frombuffer(memory, mapped.dtype, mapped.size, mapped.offset).reshape(mapped.shape)
