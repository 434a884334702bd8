"""What the command line shows: progress, downloads, the table. Plain lines where there is no terminal."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from equifl.config import Config
from equifl.metrics import interval
from equifl.paper.tables import rows
from equifl.report.table import MEASURES, Cell, Measure, Table, final_rows

console = Console()
errors = Console(stderr=True)

PLAIN_SECONDS = 10.0  # between two lines of progress where there is no terminal

_NAME = TextColumn("{task.description}", markup=False)  # one's own names may have brackets


class Watch:
    """Progress of a run on standard error: a bar with the time left, and every selector's latest figures."""

    def __init__(self, config: Config, device: str, silent: bool) -> None:
        self._config, self._silent = config, silent
        lanes = f"{len(config.selectors)} selectors x {len(config.seeds)} seeds on {device}"
        self._title = f"{config.data.name}: {lanes}"
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        self._first: tuple[float, int] | None = None  # when was which round shown first
        self._printed = -math.inf
        columns = (_NAME, BarColumn(), TextColumn("{task.completed}/{task.total} rounds"))
        self._bar = Progress(*columns, TimeRemainingColumn(), console=errors, disable=silent or not errors.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> Watch:
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=self._config.rounds)
        if not self._silent and not errors.is_terminal:
            _say(self._title)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def show(self, played: int, rows: list[dict[str, Any]]) -> None:
        """The run has played so many rounds; these are the records since the last time."""
        self._rows |= {(row["selector"], row["seed"]): row for row in rows if "accuracy" in row}
        if self._silent:
            return
        if errors.is_terminal and self._task is not None:
            self._bar.update(self._task, completed=played, description=f"{self._title}\n{self._figures()}\n")
            return
        now = time.monotonic()
        self._first = self._first or (now, played)
        if now - self._printed >= PLAIN_SECONDS or played == self._config.rounds:
            self._printed = now
            figures = f"; {self._figures(', ')}" if self._rows else ""
            _say(f"round {played}/{self._config.rounds}{self._left(now, played)}{figures}")

    def _left(self, now: float, played: int) -> str:
        """How long it may still take, as soon as there are rounds to judge by."""
        start, first = self._first or (now, played)
        left = self._config.rounds - played
        return f", {(now - start) / (played - first) * left:.0f} s left" if left and played > first else ""

    def _figures(self, between: str = "\n") -> str:
        """Accuracy and dissimilarity, mean over seeds."""
        lines = []
        for name, by_seed in final_rows(self._rows.values()).items():
            accuracy, apart = (
                sum(row[key] for row in by_seed.values()) / len(by_seed) for key in ("accuracy", "dissimilarity")
            )
            lines.append(f"{name} {accuracy:.1f} / {apart:.1f}")
        return between.join(lines)


class Downloads:
    """A progress bar a file."""

    def __init__(self, silent: bool) -> None:
        columns = (_NAME, BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=errors, disable=silent or not errors.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Downloads:
        self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def progress(self, name: str, done: int, total: int | None) -> None:
        """So many bytes of a file are there."""
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total)
        self._bar.update(self._tasks[name], completed=done, total=total)


def size(count: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> size(39_570), size(170_052_171)
    ('39.6 KB', '170.1 MB')
    """
    value, unit = count / 1e3, "KB"
    for larger in ("MB", "GB"):
        if value >= 999.95:
            value, unit = value / 1e3, larger
    return f"{value:.1f} {unit}"


def draw_table(table: Table) -> RichTable:
    """Best in bold; below each figure its difference to the baseline, marked where the interval excludes zero."""
    versus = f"; below, the difference to {table.baseline}, * where its interval excludes 0" if table.baseline else ""
    seeds = "one seed" if table.seeds == 1 else f"mean ± 95 % interval over {table.seeds} seeds"
    caption = Text(f"{seeds} after {table.round} rounds; bold = best{versus}")
    layout: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
    drawn = RichTable(caption=caption, caption_justify="left", **layout)  # as narrow as it can be: 80 columns for six
    drawn.add_column("selector", overflow="fold")
    for measure in MEASURES:
        drawn.add_column(measure.title, justify="right", no_wrap=True)
    for name, cells in table.cells.items():
        drawn.add_row(Text(name), *(_cell(cells[measure.title], measure) for measure in MEASURES))
    return drawn


def draw_paper_table(
    title: str, data: str, finals: Mapping[str, Mapping[int, Mapping[str, float]]], seeds: Sequence[int]
) -> RichTable:
    """A table of the paper in its own layout, its figures (mean ± deviation) beside ours (mean ± 95 % interval)."""
    lines = rows(title, data)
    measures = list(lines[0].printed)
    drawn = RichTable(title=f"{title}, {data}, {len(seeds)} seeds", box=box.SIMPLE_HEAD, title_justify="left")
    drawn.add_column("")
    for measure in measures:
        drawn.add_column(f"{measure}\npaper", justify="right", no_wrap=True)
        drawn.add_column("\nours", justify="right", no_wrap=True)
    for line in lines:
        cells = []
        for measure in measures:
            mean, half_width = interval([finals[line.selector][seed][measure] for seed in seeds])
            printed = line.printed.get(measure)
            cells += [f"{printed[0]:.2f} ±{printed[1]:.2f}" if printed else "", f"{mean:.2f} ±{half_width:.2f}"]
        drawn.add_row(line.title, *cells)
    return drawn


def _cell(cell: Cell, measure: Measure) -> str:
    if math.isnan(cell.mean):
        return "-"
    text = measure.shown(cell.mean)
    if not math.isnan(cell.half_width):
        text += f"±{measure.shown(cell.half_width)}"
    if cell.best:
        text = f"[bold]{text}[/bold]"
    if cell.difference is None or math.isnan(cell.difference[0]):
        return text
    mark = "*" if cell.differs else " "
    return f"{text}\n[dim]{measure.shown(cell.difference[0], '+')} {mark}[/dim]"


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            _say(record.getMessage())
        except Exception:  # what is said must not stop what is done
            self.handleError(record)


@contextmanager
def notes(silent: bool) -> Iterator[None]:
    """Shows what our modules have to say meanwhile, here alone, whatever else somebody's own modules do with it."""
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


def _say(line: str) -> None:
    errors.print(line, soft_wrap=True, markup=False, highlight=False)
