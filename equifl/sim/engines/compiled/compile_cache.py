"""A compiled function that is kept on the disk for the next process, with a log message while numba compiles it."""

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
    """The function, compiled by numba and kept on the disk where any cache can be written.

    Meant for one entry point: each such function is compiled with all that it calls. Numba itself notices changes of
    the function's own file alone, so the name under which it is kept contains `source_digest()`.
    """
    function.__qualname__ += f"_{source_digest()}"
    dispatcher = njit(nogil=True)(function)
    kept = "once for all networks"
    try:
        dispatcher.enable_caching()
    except RuntimeError:
        kept = "which it cannot keep here"
    event.register("numba:compile", _CompileNotice(dispatcher, kept))  # type: ignore[no-untyped-call]
    return dispatcher


def source_digest(folder: Path = Path(__file__).parent) -> str:
    """A digest of all source files of this package, which changes with any of them."""
    sources = (path.read_bytes() for path in sorted(folder.glob("*.py")))
    return f"{zlib.crc32(b''.join(sources)):08x}"


class _CompileNotice(event.Listener):
    """Logs that numba compiles, so that whoever waits knows why."""

    def __init__(self, dispatcher: Any, kept: str) -> None:
        self._dispatcher, self._kept = dispatcher, kept

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] is self._dispatcher:
            _log_once(f"numba compiles loops of ours, {self._kept}: up to 20 s")

    def on_end(self, event: Any) -> None:
        pass


@cache
def _log_once(message: str) -> None:
    log.info(message)
