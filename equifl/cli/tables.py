"""Tables in a terminal: they fit its width, and no name or number is cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from equifl.experiment.measures import Measure
from equifl.experiment.names import display_name
from equifl.experiment.table import Cell, Table
from equifl.experiment.table_formats import shown_name
from equifl.paper.claims import Verdict
from equifl.paper.tables import rows
from equifl.statistics import interval

console = Console()


def draw_table(table: Table, width: int | None = None) -> Group:
    """Best in bold; below each figure its difference to the baseline, marked where the interval excludes zero.

    No line is wider than `width` (default: the terminal's), and no name or number is cut.
    """
    parts = list(table.about)
    if table.compares:
        parts.append(f"below, the difference to {display_name(str(table.baseline))}")
        parts += [f"* = {table.star}"] if table.star else []
    lines = []
    parameters = table.parameter_names
    for name, cells in table.cells.items():
        figures, differences = zip(*(_cell(cells[measure.title], measure) for measure in table.measures), strict=True)
        swept = [Text(str(table.parameters.get(name, {}).get(parameter, ""))) for parameter in parameters]
        body = [("", [*swept, *figures]), ("", [*[Text()] * len(swept), *differences])]
        lines.append((shown_name(table, name), body))
    heads = [*parameters, *(measure.title for measure in table.measures)]
    drawn = _fit("selector", heads, lines, width or console.width)
    return Group(drawn, *map(Text, ("; ".join(parts), *(f"note: {note}" for note in table.notes))))


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
