"""A table as plain text, HTML, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import html
import io
import math
from typing import TYPE_CHECKING, Any

from equifl.experiment.names import display_name

if TYPE_CHECKING:
    from equifl.experiment.measures import Measure
    from equifl.experiment.table import Cell, Table

_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"²": "$^2$", "\\": r"\textbackslash{}", "<": r"\textless{}", ">": r"\textgreater{}"}


def plain_text(table: Table) -> str:
    """Aligned columns: mean and half-width, and a star where a selector differs from the baseline."""
    starred = {
        measure.title for cells in table.cells.values() for measure in table.measures if cells[measure.title].differs
    }

    def shown(measure: Measure, cell: Cell) -> str:
        return _figure(measure, cell) + (" *" if cell.differs else "  " if measure.title in starred else "")

    heads = [head + "  " * (head in starred) for head in _heads(table)]
    lines = [heads, *([*names, *(shown(m, cell) for m, cell in cells)] for names, cells in _rows(table))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = len(lines[0]) - len(table.measures)
    return "\n".join(
        "  ".join(
            text.ljust(w) if i < left else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ) + (f"\n* = differs from {display_name(str(table.baseline))}, {table.star}" if starred else "")


def html_table(table: Table) -> str:
    """For a notebook: best in bold, the difference to the baseline below."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in _heads(table))
    rows = []
    for names, cells in _rows(table):
        shown = [f"<th>{html.escape(name)}</th>" for name in names]
        for measure, cell in cells:
            figure = f"<b>{_figure(measure, cell)}</b>" if cell.best else _figure(measure, cell)
            below = f"<br><small>{_difference(measure, cell)}</small>" if _difference(measure, cell) else ""
            shown.append(f"<td>{figure}{below}</td>")
        rows.append(f"<tr>{''.join(shown)}</tr>")
    notes = "".join(f"<br>{html.escape(note)}" for note in table.notes)
    about = html.escape("; ".join(_about(table)))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table><small>{about}{notes}</small>"


def markdown(table: Table) -> str:
    """Best in bold, a star where a selector differs from the baseline."""
    lines = [_heads(table), ["---"] * (len(_heads(table)) - len(table.measures)) + ["---:"] * len(table.measures)]
    for names, cells in _rows(table):
        escaped = [name.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*") for name in names]
        figures = [(_figure(m, cell), cell) for m, cell in cells]
        lines.append(
            [*escaped, *((f"**{text}**" if cell.best else text) + " \\*" * cell.differs for text, cell in figures)]
        )
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([rows, _sentence(table).replace("* =", "\\* ="), *table.notes]) + "\n"


def latex(table: Table, caption: str | None, label: str) -> str:
    """A `table` environment with the rules of booktabs."""
    heads = [_escaped(head) for head in _heads(table)]
    left = len(heads) - len(table.measures)
    arrows = ["uparrow" if measure.more_is_better else "downarrow" for measure in table.measures]
    heads[left:] = [f"{head} $\\{arrow}$" for head, arrow in zip(heads[left:], arrows, strict=True)]
    lines = [
        [*map(_escaped, names), *(_latex_figure(measure, cell) for measure, cell in cells)]
        for names, cells in _rows(table)
    ]
    caption = _sentence(table) if caption is None else caption
    text = (caption if _is_latex(caption) else _escaped(caption)).replace("±", r"$\pm$")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{text}}}",
            f"\\label{{{label}}}",
            f"\\begin{{tabular}}{{{'l' * left}{'r' * len(table.measures)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def comma_separated(table: Table) -> str:
    """A row a selector, with all digits; empty where a value is unknown."""
    parts = ("", "_half_width", "_difference", "_difference_half_width", "_p")
    parameters = table.parameter_names
    names = [measure.name + part for measure in table.measures for part in parts]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["selector", *parameters, *names])
    for key, cells in table.cells.items():
        name = key.split("[")[0] if table.parameters.get(key) else key
        row: list[Any] = [name, *(table.parameters.get(key, {}).get(name, "") for name in parameters)]
        for measure in table.measures:
            cell = cells[measure.title]
            row += [cell.mean, cell.half_width, *(cell.difference or (math.nan, math.nan)), cell.p]
        writer.writerow(["" if isinstance(value, float) and math.isnan(value) else value for value in row])
    return text.getvalue()


def _heads(table: Table) -> list[str]:
    return ["selector", *table.parameter_names, *(measure.title for measure in table.measures)]


def _rows(table: Table) -> list[tuple[list[str], list[tuple[Measure, Cell]]]]:
    """Names and parameters, and the cells, a row a selector."""
    parameters = table.parameter_names
    return [
        (
            [shown_name(table, key), *(str(table.parameters.get(key, {}).get(name, "")) for name in parameters)],
            [(measure, cells[measure.title]) for measure in table.measures],
        )
        for key, cells in table.cells.items()
    ]


def shown_name(table: Table, key: str) -> str:
    """The name of a selector, without the parameters that have columns of their own."""
    return display_name(key.split("[")[0] if table.parameters.get(key) else key)


def _figure(measure: Measure, cell: Cell) -> str:
    if math.isnan(cell.mean):
        return "-"
    half = "" if math.isnan(cell.half_width) else f" ± {measure.shown(cell.half_width)}"
    return f"{measure.shown(cell.mean)}{half}"


def _difference(measure: Measure, cell: Cell) -> str:
    if cell.difference is None or math.isnan(cell.difference[0]):
        return ""
    return measure.shown(cell.difference[0], "+") + " *" * cell.differs


def _latex_figure(measure: Measure, cell: Cell) -> str:
    figure = _figure(measure, cell)
    if figure == "-":
        return "--"
    mean, _, half = figure.partition(" ± ")
    mean = f"\\mathbf{{{mean}}}" if cell.best else mean
    plus_minus = rf" \pm {half}" if half else ""
    return f"${mean}{plus_minus}{'^{*}' if cell.differs else ''}$"


def _about(table: Table) -> list[str]:
    below = [f"below, the difference to {display_name(str(table.baseline))}"] if table.compares else []
    return [*table.about, *below, *([f"* = {table.star}"] if table.star else [])]


def _sentence(table: Table) -> str:
    """What the figures, bold and stars say."""
    star = f"* = differs from {display_name(str(table.baseline))}, {table.star}"
    parts = [*table.about, *([star] if table.star else [])]
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _is_latex(text: str) -> bool:
    """Whether a caption was written as LaTeX: it has a command or a formula."""
    return "\\" in text or "$" in text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
