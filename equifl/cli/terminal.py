"""What the command line shows: progress, downloads, the table. Plain lines where there is no terminal."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from equifl.experiment.config import Config
from equifl.experiment.table import MEASURES, Cell, Measure, Table, display_name, final_rows
from equifl.paper.claims import Verdict
from equifl.paper.tables import rows
from equifl.statistics import interval

console = Console()
errors = Console(stderr=True)

PLAIN_SECONDS = 10.0  # between two lines of progress where there is no terminal

_NAME = TextColumn("{task.description}", markup=False)  # one's own names may have brackets


class Watch:
    """Progress of a run on standard error: a bar with the time left, and every selector's latest figures."""

    def __init__(self, config: Config, device: str, silent: bool) -> None:
        self._config, self._silent = config, silent
        lanes = f"{_count(len(config.selectors), 'selector')} x {_count(len(config.seeds), 'seed')} on {device}"
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
            lines.append(f"{display_name(name)} {accuracy:.1f} / {apart:.1f}")
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


def draw_table(table: Table, width: int | None = None) -> Group:
    """Best in bold; below each figure its difference to the baseline, marked where the interval excludes zero.

    No line is wider than `width` (default: the terminal's), and no name or number is cut.
    """
    rounds = f"after {_count(table.round, 'round')}"
    one = table.seeds == 1
    caption = f"one seed {rounds}: no interval" if one else f"{_seeds(table.seeds)} {rounds}"
    caption += "; bold = best"
    if table.baseline and len(table.cells) > 1:
        caption += f"; below, the difference to {display_name(table.baseline)}"
        caption += "" if one else ", * where its interval excludes 0"
    lines = []
    for name, cells in table.cells.items():
        figures, differences = zip(*(_cell(cells[measure.title], measure) for measure in MEASURES), strict=True)
        lines.append((display_name(name), [("", figures), ("", differences)]))
    drawn = _fit("selector", [measure.title for measure in MEASURES], lines, width or console.width)
    return Group(drawn, *map(Text, (caption, *(f"note: {note}" for note in table.notes))))


def draw_paper_table(
    title: str,
    data: str,
    finals: Mapping[str, Mapping[int, Mapping[str, float]]],
    seeds: Sequence[int],
    width: int | None = None,
) -> Group:
    """A table of the paper: our figures (mean ± 95 % interval), and below each the paper's (mean ± deviation)."""
    found = rows(title, data)
    measures = list(found[0].printed)
    lines = []
    for row in found:
        ours = [interval([finals[row.selector][seed][measure] for seed in seeds]) for measure in measures]
        versions = [("ours", [Text(_figure(*pair)) for pair in ours])]
        if row.printed:
            versions.append(("paper", [Text(_figure(*row.printed[measure]), "dim") for measure in measures]))
        lines.append((row.title, versions))
    heads = [_PAPER_HEADS[measure] for measure in measures]
    drawn = _fit("", heads, lines, width or console.width)
    return Group(Text(f"{title}, {data}, {_seeds(len(seeds))}; paper: mean ± deviation", "italic"), drawn)


def draw_verdicts(data: str, verdicts: Sequence[Verdict]) -> Group:
    """The paper's claims about a data set, a line each: what came of it, our number, the paper's, the claim."""
    drawn = RichTable.grid(padding=(0, 2, 0, 0))
    drawn.add_column(no_wrap=True, style="bold")
    drawn.add_column(no_wrap=True, justify="right")
    drawn.add_column(no_wrap=True)
    drawn.add_column()
    for verdict in verdicts:
        figure = _figure(verdict.mean, verdict.half_width, sign="+")
        paper = f"paper {verdict.claim.printed:+.2f}"
        drawn.add_row(Text(verdict.outcome), Text(figure), Text(paper), Text(verdict.claim.text))
    return Group(Text(f"claims of the paper, {data}, {_seeds(verdicts[0].seeds)}", "italic"), drawn)


_PAPER_HEADS = {"local_loss": "local loss", "accuracy": "accuracy %", "dissimilarity": "dissimilarity"}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _seeds(number: int) -> str:
    return "one seed: no interval" if number == 1 else f"mean ± 95 % interval over {number} seeds"


def _figure(mean: float, half_width: float, sign: str = "") -> str:
    return f"{mean:{sign}.2f}" + ("" if math.isnan(half_width) else f"±{half_width:.2f}")


def _cell(cell: Cell, measure: Measure) -> tuple[Text, Text]:
    """A figure, and its difference to the baseline, empty where there is none."""
    if math.isnan(cell.mean):
        return Text("-"), Text()
    figure = measure.shown(cell.mean)
    if not math.isnan(cell.half_width):
        figure += f"±{measure.shown(cell.half_width)}"
    text = Text(figure, "bold" if cell.best else "")
    if cell.difference is None or math.isnan(cell.difference[0]):
        return text, Text()
    return text, Text(measure.shown(cell.difference[0], "+") + " *" * cell.differs, "dim")


_Rows = Sequence[tuple[str, Sequence[tuple[str, Sequence[Text]]]]]  # a name, and lines: a label, and a cell a column
_GAP = 2  # blanks between two columns


def _fit(corner: str, heads: Sequence[str], rows: _Rows, width: int) -> Text:
    """A table no wider than `width` with every name and number whole.

    Where it is too wide, heads take two lines, names a line of their own, and columns go on below in a second block:
    whatever takes the fewest blocks.
    """
    layouts = []
    for above in (False, True):
        for depth in (1, 2):
            lines = _heads("" if above else corner, heads, depth) + _body(rows, above)
            columns = zip(*(line for line in lines if line[1:]), strict=True)
            widths = [max(cell.cell_len for cell in column) for column in columns]
            layouts.append((_blocks(widths, width), depth, lines, widths))
    blocks, depth, lines, widths = min(layouts, key=lambda layout: len(layout[0]))
    drawn = []
    for number, block in enumerate(blocks):
        drawn += [Text()] * (number > 0)
        for place, line in enumerate(lines):
            if place == depth:
                drawn.append(Text("─" * (widths[0] + sum(_GAP + widths[i] for i in block))))
            if not line[1:] or any(line[i] for i in block):
                drawn.append(_joined(line, widths, block))
    return Text("\n").join(drawn)


def _heads(corner: str, heads: Sequence[str], depth: int) -> list[list[Text]]:
    """The lines above the rule: each head on the last, or, of two, its first word on the one before."""
    parts = [[head] if depth == 1 else ["", *head.split(" ", 1)][-2:] for head in heads]
    labels = ["", corner][-depth:]
    return [
        [Text(label, "bold"), *(Text(part, "bold") for part in line)]
        for label, line in zip(labels, zip(*parts, strict=True), strict=True)
    ]


def _body(rows: _Rows, above: bool) -> list[list[Text]]:
    """The lines below the rule: a name alone above its cells, or before the first line of them."""
    body = []
    for name, lines in rows:
        labels = [f"  {label}".rstrip() for label, _ in lines]
        if above:
            body.append([Text(name)])
        else:
            labels[0] = name
        body += [[Text(label), *cells] for label, (_, cells) in zip(labels, lines, strict=True)]
    return body


def _blocks(widths: Sequence[int], width: int) -> list[list[int]]:
    """Columns that stand side by side: as many as there is room for beside the first, and at least one."""
    blocks: list[list[int]] = []
    room = 0
    for column, needed in enumerate(widths[1:], 1):
        if room < _GAP + needed or not blocks:
            blocks.append([])
            room = width - widths[0]
        blocks[-1].append(column)
        room -= _GAP + needed
    return blocks


def _joined(line: Sequence[Text], widths: Sequence[int], block: Sequence[int]) -> Text:
    """The label, and the block's cells flush right."""
    drawn = line[0].copy()
    for column in block if line[1:] else ():
        end = widths[0] + sum(_GAP + widths[i] for i in block if i <= column)
        drawn.append(" " * (end - drawn.cell_len - line[column].cell_len)).append_text(line[column])
    drawn.rstrip()
    return drawn


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
