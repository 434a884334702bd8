"""Progress, downloads and notes: a bar in a terminal, a text that changes in a notebook, else plain lines."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.names import display_name
from equifl.experiment.results import Records
from equifl.experiment.table import final_rows
from equifl.experiment.task_table import ACCURACY, is_evaluated, score_of

errors = Console(stderr=True)

PLAIN_SECONDS = 10.0  # between two lines of progress where there is no terminal
NOTEBOOK_SECONDS = 0.2  # between two changes of the text in a notebook

_NAME = TextColumn("{task.description}", markup=False)  # one's own names may have brackets


class Watch(Callback):
    """Progress, on standard error or in a notebook: rounds, the time left, and every selector's latest figures.

    Attributes:
        playing: whether the experiment has begun.
    """

    def __init__(self, silent: bool) -> None:
        self.playing = False
        self._silent, self._rounds, self._title = silent, 0, ""
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._first: tuple[float, int] | None = None  # when was which round shown first
        self._printed, self._score = -math.inf, ACCURACY
        columns = (_NAME, BarColumn(), TextColumn("{task.completed}/{task.total} rounds"))
        self._bar = Progress(*columns, TimeRemainingColumn(), console=errors, disable=silent or not _bars())
        self._task: TaskID | None = None
        self._notebook = in_notebook()
        self._place: Any = None  # of the text in the notebook

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def on_start(self, config: Config, player: Any) -> None:
        self.playing, self._rounds = True, config.rounds
        self._latest, self._first, self._score = {}, None, score_of(config.as_dict())
        runs = f"{count(len(config.selectors), 'selector')} x {count(len(config.seeds), 'seed')} on {player.device}"
        self._title = f"{config.data.name}: {runs}"
        if player.note and not self._silent:
            _say(player.note)
        self._bar.start()
        if self._task is not None:  # the next experiment of a sweep
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(self._title, total=config.rounds)
        self._place, self._printed = None, -math.inf
        if not self._silent and not errors.is_terminal and not self._notebook:
            _say(self._title)

    def on_round(self, played: int, records: Records) -> None:
        self._latest |= {(row["selector"], row["seed"]): row for row in records if is_evaluated(row)}
        if not self._silent:
            self._show(played)

    def _show(self, played: int) -> None:
        if self._task is not None and _bars():
            self._bar.update(self._task, completed=played, description=f"{self._title}\n{self._figures()}\n")
            return
        now = time.monotonic()
        self._first = self._first or (now, played)
        if now - self._printed < (NOTEBOOK_SECONDS if self._notebook else PLAIN_SECONDS) and played != self._rounds:
            return
        self._printed = now
        line = f"round {played}/{self._rounds}{self._left(now, played)}"
        if self._notebook:
            self._change_text("\n".join(filter(None, [self._title, line, self._figures()])))
        else:
            _say(f"{line}; {self._figures(', ')}" if self._latest else line)

    def _change_text(self, text: str) -> None:
        """Show a text in the place of the last one."""
        display = import_module("IPython.display").display  # a notebook has it
        if self._place is None:
            self._place = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._place.update({"text/plain": text}, raw=True)

    def _left(self, now: float, played: int) -> str:
        """The time left, estimated from the rounds so far."""
        start, first = self._first or (now, played)
        left = self._rounds - played
        return f", {(now - start) / (played - first) * left:.0f} s left" if left and played > first else ""

    def _figures(self, between: str = "\n") -> str:
        """Score and dissimilarity, mean over seeds."""
        lines, score = [], self._score
        for name, by_seed in final_rows(self._latest.values()).items():
            best, dissimilarity = (
                sum(row[key] for row in by_seed.values()) / len(by_seed) for key in (score.key, "dissimilarity")
            )
            lines.append(f"{display_name(name)} {best:.{score.digits}f} / {dissimilarity:.{score.digits}f}")
        return between.join(lines)


@contextmanager
def downloads(silent: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar a file: gives a function to call with its name, the bytes received, and the bytes in all."""
    columns, tasks = (_NAME, BarColumn(), DownloadColumn(), TimeRemainingColumn()), dict[str, TaskID]()
    with Progress(*columns, console=errors, disable=silent or not _bars()) as bar:

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield show


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            _say(record.getMessage())
        except Exception:  # a failed message must not stop the experiment
            self.handleError(record)


@contextmanager
def notes(silent: bool) -> Iterator[None]:
    """Print the log messages of equifl on standard error, whatever logging a user's modules set up."""
    log, handler = logging.getLogger("equifl"), _Notes()
    level, propagate = log.level, log.propagate
    log.setLevel(logging.WARNING if silent else logging.INFO)
    if not silent:
        log.addHandler(handler)
        log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


def count(number: int, what: str) -> str:
    """A number of things, with a plural where it has one.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def is_watched() -> bool:
    """Whether somebody is probably looking: in a terminal or a notebook."""
    return errors.is_terminal or in_notebook()


def _bars() -> bool:
    return errors.is_terminal and not in_notebook()


def _say(line: str) -> None:
    if in_notebook():
        print(line, file=sys.stderr)
        return
    errors.print(line, soft_wrap=True, markup=False, highlight=False)
