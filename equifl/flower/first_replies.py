"""A round that ends with the first replies, or at its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from equifl.flower.wrapped import Relay


@dataclass(frozen=True)
class Ends:
    """When to go on without the replies that did not come: after so many of training, or so many seconds."""

    enough: int | None
    deadline: float | None


class FirstReplies(Relay):
    """A grid whose rounds of training and evaluation end early. `counts`: whether a reply is one of enough.

    Attributes:
        cut: whether the last round of training ended with replies still to come, because there were enough of them.
    """

    def __init__(self, grid: Grid, ends: Ends, counts: Callable[[Message], bool]) -> None:
        super().__init__(grid)
        self._ends, self._counts, self.cut = ends, counts, False

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The replies that came by then."""
        sent = list(messages)
        kind = sent[0].metadata.message_type.partition(".")[0] if sent else ""
        if kind not in ("train", "evaluate"):
            return self._grid.send_and_receive(sent, timeout=timeout)
        seconds = min((each for each in (timeout, self._ends.deadline) if each is not None), default=None)
        if kind == "train" and self._ends.enough is not None:
            return self._first(sent, self._ends.enough, seconds)
        return self._grid.send_and_receive(sent, timeout=seconds)

    def _first(self, messages: Collection[Message], enough: int, seconds: float | None) -> list[Message]:
        """Replies as they come, until so many of them count."""
        waiting = {message_id for message_id in self._grid.push_messages(messages) if message_id}
        until = None if seconds is None else time.monotonic() + seconds
        replies: list[Message] = []
        pause, good = 0.1, 0
        while waiting:
            came = list(self._grid.pull_messages(waiting))
            replies += came
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            good += sum(map(self._counts, came))
            if good >= enough or (until is not None and time.monotonic() >= until):
                break
            if waiting:
                time.sleep(pause)
                pause = min(1.5 * pause, 1.0)
        self.cut = bool(waiting) and good >= enough
        return replies
