"""Ctrl-C: the first stops an experiment after the round, the second ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from equifl.experiment.callbacks import Callback
from equifl.experiment.results import Records


class StopRequests(Callback):
    """Stops an experiment after the round in which it is asked to, so that its results so far are returned.

    Attributes:
        requested: whether it is to stop after this round.
    """

    requested = False

    def on_round(self, played: int, records: Records) -> bool:
        return not self.requested

    @contextmanager
    def listening(self, *, terminated: bool = False) -> Iterator[None]:
        """Take Ctrl-C for a request, and a polite kill if `terminated`; a second one raises KeyboardInterrupt.

        Signals belong to the main thread: in another one nothing changes. Nor does it where a program has a handler of
        its own for Ctrl-C, unless `terminated` says that the program is ours.
        """
        numbers = (signal.SIGINT, *((signal.SIGTERM,) if terminated else ()))
        main = threading.current_thread() is threading.main_thread()
        if not main or not (terminated or signal.getsignal(signal.SIGINT) is signal.default_int_handler):
            yield
            return
        before = {number: signal.signal(number, self._ask) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("stopping after this round ...", file=sys.stderr, flush=True)
