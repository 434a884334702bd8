"""Loops that numba compiles once, keeps on the disk for the next process, and says so when somebody has to wait."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

log = logging.getLogger(__name__)


def compiled(function: Callable[..., Any]) -> Any:
    """Kept on the disk for the next process, where any cache can be written.

    One entry for all that can be asked for, because each would be compiled with all that it calls. Numba notices
    changes of the function's own file; of those in which the loops are there is a digest in its name.
    """
    read = "".join(Path(__file__).with_name(name).read_text() for name in ("llvm.py", "simd_loops.py", "kernels.py"))
    function.__qualname__ += f"_{zlib.crc32(read.encode()):08x}"
    dispatcher = njit(nogil=True)(function)
    kept = "once for all networks"
    try:
        dispatcher.enable_caching()
    except RuntimeError:
        kept = "which it cannot keep here"
    event.register("numba:compile", _Told(dispatcher, kept))  # type: ignore[no-untyped-call]
    return dispatcher


class _Told(event.Listener):
    """Whoever has to wait is told why."""

    def __init__(self, dispatcher: Any, kept: str) -> None:
        self._dispatcher, self._kept = dispatcher, kept

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] is self._dispatcher:
            _tell(f"numba compiles loops of ours, {self._kept}: up to 20 s")

    def on_end(self, event: Any) -> None:
        pass


@cache
def _tell(what: str) -> None:
    """Once is enough."""
    log.info(what)
