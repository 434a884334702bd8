"""One HTML file about a run, which needs nothing else to open: no network, no server, no other file."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from equifl.extras import needed_by

with needed_by("equifl.report"):
    import tomli_w
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

from equifl._numerics.checks import require
from equifl.experiment.atomic_write import replacing
from equifl.experiment.measures import Measure, Row, more_measures
from equifl.experiment.names import display_name, listed
from equifl.experiment.results import Results
from equifl.experiment.table import Table
from equifl.experiment.table_formats import shown_name
from equifl.experiment.task_table import Score
from equifl.report.figures import Drawing, Rows, draw
from equifl.report.numbers import HOSTS, Numbers, make_numbers
from equifl.report.styles import STYLES, style

REPORT = "report.html"


def write_report(results: Results, output: Path | str | None = None) -> Path:
    """Write the report, finished or not; returns where it is (default: report.html in the results' folder)."""
    if output is None and results.folder is None:
        raise ValueError(
            "output: missing; these results have no folder of their own; give a file: report('page.html')"
        )
    path = Path(output) if output is not None else results.folder / REPORT  # type: ignore[operator]
    allowed = "a name that ends in .html or .htm; for a PDF, open the page in a browser and print it to a file"
    require("output", str(path), path.suffix.lower() in (".html", ".htm"), allowed)
    try:
        page = make_page(results)
    except ValueError as error:
        raise ValueError(f"{results.folder or 'results'}: cannot be reported ({error})") from None
    with replacing(path) as file:
        file.write(page.encode())
    return path


def make_page(results: Results) -> str:
    """The page as text; the same records give the same text."""
    config, made_with, table = results.config, results.made_with, results.table()
    numbers, more = make_numbers(config, results.whole_rounds), _more(results)
    environment = Environment(  # loads the template beside this file
        loader=PackageLoader("equifl.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "nan": math.isnan,
        "data_uri": data_uri,
        "display_name": display_name,
        "shown_name": shown_name,
    }
    return environment.get_template("template.html.j2").render(
        title=_title(config["data"]["name"], numbers),
        recorder=next((recorder for host, recorder in HOSTS.items() if host in config), None),
        numbers=numbers,
        lead=" ".join(filter(None, (_lead(table, numbers.score), _of_a_part(results.whole_rounds, numbers)))),
        table=table,
        measures=table.measures,
        more=more,
        about_more=_about_more(more),
        distinct=STYLES,
        styles={name: style(i) for i, name in enumerate(config["selectors"])},
        drawings=[_for_page(drawing) for drawing in draw(numbers)],
        recipes={name: as_toml(part.config) for name, part in (results.parts or {"": results}).items()},
        made_with=made_with,
        plotly=Markup(get_plotlyjs()),  # trusted, and escaping would break it
    )


# What a report says of fairness beside the usual measures, with a sentence on those that need one.
MORE: Mapping[str, str] = {
    "expected_dissimilarity": "Without noise: dissimilarity where each client's mixture of classes is scored on the "
    "whole test set.",
    "noise_floor": "Noise floor: the dissimilarity that so few test examples a client would give if all fared alike.",
    "minimum": "",
    "q10": "10 % quantile: what a tenth of the clients are below.",
    "std": "",
    "loss_std": "Loss deviation: how much the clients' training losses differ.",
}


def _more(results: Results) -> Table | None:
    """A second table, of the measures that are known here: an earlier version, or Flower, records fewer."""
    asked = {measure.name for measure in more_measures(results.score)}
    found = results.table(measures=[name for name in MORE if name in asked])
    of_first = next(iter(found.cells.values()))
    known = [measure.name for measure in found.measures if not math.isnan(of_first[measure.title].mean)]
    return results.table(measures=known) if known else None


def _about_more(more: Table | None) -> str:
    return "" if more is None else " ".join(filter(None, (MORE[measure.name] for measure in more.measures)))


def as_toml(config: Mapping[str, Any]) -> str:
    """A configuration in TOML, without what was left at None; `equifl run` reads it back to the same.

    >>> task, train = {"name": None}, {"lr": 0.1, "epochs": None}
    >>> print(as_toml({"rounds": 2, "task": task, "train": train, "selectors": {"mine": {"class": "a:B"}}}))
    rounds = 2
    <BLANKLINE>
    [train]
    lr = 0.1
    <BLANKLINE>
    [selectors.mine]
    class = "a:B"
    <BLANKLINE>
    """
    return tomli_w.dumps(_without_none(config))


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without keys that were left at None, and without tables that had no others."""
    given = {}
    for key, value in table.items():
        plain = _without_none(value) if isinstance(value, Mapping) else value
        if plain is not None and not (value and plain == {}):
            given[key] = plain
    return given


def _title(name: str, numbers: Numbers) -> str:
    counts = [("client", numbers.clients), ("round", numbers.rounds), ("seed", numbers.seeds)]
    text = ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts)
    return f"{name}: {text}"


def _lead(table: Table, score: Score) -> str:
    """What the table says first, in words; of a single selector there is no best."""
    if len(table.cells) == 1:
        return ""
    best, dissimilarity = table.measures[:2]
    most, fairest = _best(table, best), _best(table, dissimilarity)
    if not score.percent:
        return f"Best {score.title}: {most}. Fairest: {fairest} between two clients on average."
    return f"Most accurate: {most} %. Fairest: {fairest} points between two clients on average."


def _of_a_part(rows: Iterable[Row], numbers: Numbers) -> str:
    """What the last evaluation of a live federation says of all clients, if a part of them evaluated."""
    last = [row for row in rows if row.get("intervals")][-1:]
    if not last:
        return ""
    row, half = last[0], last[0]["intervals"]
    accuracy = f"accuracy {row['accuracy']:.1f} ± {half['accuracy']:.1f} %"
    dissimilarity = f"dissimilarity {row['dissimilarity']:.1f} ± {half['dissimilarity']:.1f} points"
    who = f"{row['evaluated']:,} of {numbers.clients:,} clients evaluated last"
    return f"{who}; for all of them that says: {accuracy}, {dissimilarity} (95 % intervals)."


def _best(table: Table, measure: Measure) -> str:
    """Who is best, and the figure: a tie of those whose figures look the same."""
    best = [name for name, cells in table.cells.items() if cells[measure.title].best]
    names, figure = (
        listed([display_name(name) for name in best]),
        measure.shown(table.cells[best[0]][measure.title].mean),
    )
    if len(best) == 1:
        return f"{names}, {figure}"
    return f"all tie at {figure}" if len(best) == len(table.cells) else f"a tie of {names} at {figure}"


def _for_page(drawing: Drawing) -> dict[str, Any]:
    panels = [
        {"heading": heading, "figure": json.loads(figure.to_json())}  # plain values, for the template's own escaping
        for heading, figure in drawing.panels.items()
    ]
    about = {"name": drawing.name, "title": drawing.title, "caption": drawing.caption}
    return {**about, "panels": panels, "csv": _csv(drawing.data)}


def _csv(data: Rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in data)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A number with ten digits, nan as an empty cell."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.10g}"


def data_uri(text: str, kind: str) -> str:
    """A link that contains the file."""
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
