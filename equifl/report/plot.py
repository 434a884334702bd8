"""One figure of the report by itself, as a figure of plotly."""

from __future__ import annotations

from pathlib import Path

from equifl.extras import MissingExtraError, needed_by

with needed_by("a figure"):
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

from equifl._numerics.checks import require
from equifl.experiment.results import Results
from equifl.report.figures import Drawing, draw
from equifl.report.numbers import make_numbers

IMAGES = (".svg", ".pdf", ".png")


def plot(results: Results, kind: str, path: Path | str | None = None) -> go.Figure:
    """The figure, with its title; several panels side by side. `Results.plot` says what the arguments are."""
    drawings = {drawing.name: drawing for drawing in draw(make_numbers(results.config, results.whole_rounds))}
    require("kind", kind, kind in drawings, ", ".join(drawings))
    if path is not None:
        allowed = f"a name that ends in {', '.join(IMAGES)} or .html"
        require("path", str(path), Path(path).suffix.lower() in (*IMAGES, ".html"), allowed)
        require("path", str(path), Path(path).absolute().parent.is_dir(), "a file in a folder that is there")
    figure = _joined(drawings[kind])
    if path is not None:
        _write(figure, Path(path))
    return figure


def _joined(drawing: Drawing) -> go.Figure:
    """The panels as one figure on white, as a paper or a notebook has it."""
    panels = list(drawing.panels.values())
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    headings = [heading for heading in drawing.panels if heading]
    figure = make_subplots(rows, columns, subplot_titles=headings or None)
    figure.update_layout(template="plotly_white", title=drawing.title, height=480 if rows == 1 else 320 * rows)
    shown: set[str] = set()
    for place, panel in enumerate(panels):
        where = {"row": place // columns + 1, "col": place % columns + 1}
        for trace in panel.data:
            if not getattr(trace, "legendgroup", None):
                trace.update(showlegend=False)  # plotly would call it "trace 0"
            elif len(panels) > 1 and trace.showlegend is not False:
                trace.update(showlegend=trace.legendgroup not in shown)
                shown.add(trace.legendgroup)
            figure.add_trace(trace, **where)
        for shape in panel.layout.shapes:
            figure.add_vrect(x0=shape.x0, x1=shape.x1, fillcolor=shape.fillcolor, opacity=shape.opacity, line_width=0)
        for axis, update in ((panel.layout.xaxis, figure.update_xaxes), (panel.layout.yaxis, figure.update_yaxes)):
            keep = {"range", "autorange", "dtick", "rangemode"}
            given = {key: value for key, value in axis.to_plotly_json().items() if key in keep}
            update(title_text=axis.title.text, **given, **where)
    return figure


def _write(figure: go.Figure, path: Path) -> None:
    if path.suffix.lower() == ".html":
        figure.write_html(path)
        return
    try:
        import kaleido  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path}: needs kaleido, which is not installed; pip install kaleido, or write an .html file",
            name="kaleido",
        ) from None
    figure.write_image(path)
