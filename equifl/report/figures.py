"""The figures of the report, from its numbers: each with a caption in plain words and the data behind it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from equifl.report.numbers import Numbers, Selector, Series

# Okabe and Ito's colours, told apart by the colour-blind; black would vanish in the dark, grey stands for it.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C", "#F0E442")
DASHES = ("solid", "dash", "dot", "dashdot")  # for lines that coincide, and printers without colours
MOST_CELLS = 200_000  # of all maps together: a quarter of a megabyte, and all that a screen has room for

Rows = list[list[Any]]

_TERMS = {
    "G": "G: how well the cohort represents everyone",
    "H": "H: bonus for high losses",
    "g": "g: price of recent cohorts",
}
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


@dataclass(frozen=True)
class Drawing:
    """One figure of the page: a panel, or several with a heading each, and its data as rows with a header."""

    name: str
    title: str
    caption: str
    panels: dict[str, go.Figure]
    data: Rows


def draw(numbers: Numbers) -> list[Drawing]:
    """All figures, in the order of the page; no terms where no selector has an objective."""
    drawings = [_accuracy(numbers), _dissimilarity(numbers), _plane(numbers), _clients(numbers)]
    drawings += [_map(numbers), _counts(numbers), *_terms(numbers), _bytes(numbers)]
    return drawings


def _accuracy(numbers: Numbers) -> Drawing:
    return _over_rounds(
        "accuracy",
        "Accuracy over rounds",
        "How many of all test examples the shared model gets right; higher is better.",
        "accuracy, %",
        numbers,
        lambda selector: selector.accuracy,
    )


def _dissimilarity(numbers: Numbers) -> Drawing:
    return _over_rounds(
        "dissimilarity",
        "Dissimilarity over rounds",
        "How far two clients' accuracies are apart on average, in points; lower is fairer.",
        "dissimilarity, points",
        numbers,
        lambda selector: selector.dissimilarity,
    )


def _over_rounds(
    name: str, title: str, caption: str, axis: str, numbers: Numbers, read: Callable[[Selector], Series]
) -> Drawing:
    if numbers.seeds > 1:
        caption = f"{caption[:-1]}; lines are means over {numbers.seeds} seeds, bands their 95 % intervals."
    data: Rows = [["selector", "round", "mean", "half_width_95"]]
    traces = []
    for position, (selector, found) in enumerate(numbers.selectors.items()):
        series = read(found)
        if numbers.seeds > 1:
            traces.append(_band(position, selector, series))
        traces.append(_line(position, selector, series.rounds, series.mean, ".1f", mode="lines+markers"))
        triples = zip(series.rounds, series.mean, series.half_width, strict=True)
        data += [[selector, *triple] for triple in triples]
    return Drawing(name, title, caption, {"": _figure(traces, "round", axis, unified=True)}, data)


def _plane(numbers: Numbers) -> Drawing:
    caption = (
        "Each dot is one seed at its last evaluation, each diamond a selector's mean; the best place is top left."
    )
    data: Rows = [["selector", "seed", "accuracy", "dissimilarity"]]
    traces = []
    hover = "accuracy %{y:.1f} %<br>dissimilarity %{x:.1f}"
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        x, y = [p.dissimilarity for p in selector.plane], [p.accuracy for p in selector.plane]
        seeds = [p.seed for p in selector.plane]
        dots = {"color": _colour(position), "size": 8, "opacity": 0.55}
        one = _trace(position, name, x=x, y=y, mode="markers", marker=dots, customdata=seeds, showlegend=False)
        traces.append(one.update(hovertemplate=f"seed %{{customdata}}<br>{hover}"))
        mean = {"color": _colour(position), "size": 14, "symbol": "diamond"}
        many = _trace(position, name, x=[np.mean(x)], y=[np.mean(y)], mode="markers", marker=mean)
        traces.append(many.update(hovertemplate=f"mean<br>{hover}"))
        data += [[name, *point] for point in zip(seeds, y, x, strict=True)]
    return Drawing(
        "plane",
        "Fairness and accuracy together",
        caption,
        {"": _figure(traces, "dissimilarity, points (less is fairer)", "accuracy, %")},
        data,
    )


def _clients(numbers: Numbers) -> Drawing:
    caption = "Every client's accuracy at the last evaluation, from the worst served to the best"
    if numbers.seeds > 1:
        caption += f", mean over {numbers.seeds} seeds"
    data: Rows = [["selector", "rank", "client", "accuracy", "worst_10_percent"]]
    traces = []
    worst = 0
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        found = selector.clients
        worst, ranks = found.worst, list(range(1, len(found.ids) + 1))
        line = _line(position, name, ranks, found.accuracy, ".1f", mode="lines+markers")
        sizes = [(8 if worst <= 10 else 5) if rank <= worst else 0 for rank in ranks]
        line.update(marker={"size": sizes, "opacity": 1, "line": {"width": 0}}, customdata=found.ids)
        traces.append(line.update(hovertemplate="client %{customdata}: %{y:.1f} %"))
        ranked = zip(ranks, found.ids, found.accuracy, strict=True)
        data += [[name, rank, client, value, int(rank <= worst)] for rank, client, value in ranked]
    figure = _figure(traces, "clients, worst served first", "accuracy, %")
    figure.add_vrect(x0=0.5, x1=worst + 0.5, fillcolor="#8C8C8C", opacity=0.18, line_width=0)
    caption += "; the shaded part with dots is the worst 10 %."
    return Drawing("clients", "Accuracy of every client", caption, {"": figure}, data)


def _map(numbers: Numbers) -> Drawing:
    shown = max(1, min(numbers.played, MOST_CELLS // (numbers.clients * len(numbers.selectors))))
    part = "" if shown == numbers.played else f"; the first {shown} of {numbers.played} rounds"
    seed = next(iter(numbers.selectors.values())).participation.seed
    caption = f"Who took part in which round, of seed {seed}: a row is a client, a column a round{part}."
    data: Rows = [["selector", "client", "round"]]
    panels = {}
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        selected = selector.participation.selected[:, :shown]
        scale = [[0, "rgba(128,128,128,0.08)"], [1, _colour(position)]]
        heat = go.Heatmap(z=selected, x0=1, dx=1, zmin=0, zmax=1, colorscale=scale, showscale=False)
        heat.update(hovertemplate="client %{y}, round %{x}: %{z}<extra>1 = took part</extra>")
        panels[name] = _figure([heat], "round", "client", height=290)
        panels[name].update_yaxes(autorange="reversed", showgrid=False).update_xaxes(showgrid=False)
        data += [[name, int(client), int(round) + 1] for client, round in np.argwhere(selected)]
    return Drawing("map", "Who took part when", caption, panels, data)


def _counts(numbers: Numbers) -> Drawing:
    seeds = f"over {numbers.seeds} seeds" if numbers.seeds > 1 else "over all rounds"
    caption = f"How often each client took part {seeds}, from the most to the least; a flat line is an equal share."
    data: Rows = [["selector", "client", "times_selected"]]
    traces = []
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        counts = selector.participation.counts
        order = sorted(range(len(counts)), key=lambda client, counts=counts: -counts[client])  # type: ignore[misc]
        ordered = [counts[client] for client in order]
        line = _line(position, name, list(range(1, len(order) + 1)), ordered, "d", mode="lines")
        line.update(customdata=order, line={"shape": "hvh"})
        traces.append(line.update(hovertemplate="client %{customdata}: %{y} times"))
        data += [[name, client, count] for client, count in enumerate(counts)]
    figure = _figure(traces, "clients, most often selected first", "times selected")
    figure.update_yaxes(rangemode="tozero")
    return Drawing("counts", "How often each client took part", caption, {"": figure}, data)


def _terms(numbers: Numbers) -> list[Drawing]:
    names = dict.fromkeys(term for selector in numbers.selectors.values() for term in selector.terms)
    if not names:
        return []
    data: Rows = [["selector", "term", "round", "mean", "half_width_95"]]
    panels = {}
    for term in names:
        traces = []
        for position, (name, selector) in enumerate(numbers.selectors.items()):
            if term in selector.terms:
                series = selector.terms[term]
                traces.append(_line(position, name, series.rounds, series.mean, ".3~g", mode="lines"))
                triples = zip(series.rounds, series.mean, series.half_width, strict=True)
                data += [[name, term, *triple] for triple in triples]
        panels[_TERMS.get(term, term)] = _figure(traces, "round", term, height=320, unified=True)
    caption = "What each round's cohort was worth in the terms that its selector maximises, mean over seeds."
    return [Drawing("terms", "What the selectors maximise", caption, panels, data)]


def _bytes(numbers: Numbers) -> Drawing:
    selectors = numbers.selectors.items()
    most = max(max(*s.down.mean, *s.up.mean) for _, s in selectors)
    size, unit = next((pair for pair in _BYTES if most >= pair[0]), _BYTES[-1])
    data: Rows = [["selector", "round", "bytes_down", "bytes_up"]]
    panels = {}
    for heading, read in (("down to the clients", "down"), ("up from the clients", "up")):
        traces = []
        for position, (name, selector) in enumerate(selectors):
            series: Series = getattr(selector, read)
            scaled = [value / size for value in series.mean]
            traces.append(_line(position, name, series.rounds, scaled, ".4~g", mode="lines"))
        panels[heading] = _figure(traces, "round", unit, height=320, unified=True)
        panels[heading].update_yaxes(rangemode="tozero")
    for name, selector in selectors:
        totals = zip(selector.down.rounds, selector.down.mean, selector.up.mean, strict=True)
        data += [[name, *total] for total in totals]
    caption = "Bytes that one run has sent since its beginning, mean over seeds; lines may lie on each other."
    return Drawing("bytes", "What it costs to send", caption, panels, data)


def _line(position: int, name: str, x: list[int], y: Sequence[float], digits: str, *, mode: str) -> go.Scatter:
    dash = DASHES[position % len(DASHES)]
    style = {"color": _colour(position), "dash": dash, "width": 2}
    trace = _trace(
        position,
        name,
        x=np.asarray(x, np.int32),
        y=np.asarray(y, np.float32),
        mode=mode,
        line=style,
        marker={"size": 5},
    )
    return trace.update(hovertemplate=f"%{{y:{digits}}}")


def _band(position: int, name: str, series: Series) -> go.Scatter:
    """Cut at 0 and 100, which percents and their differences keep to: two seeds make an interval of hundreds."""
    pairs = list(zip(series.mean, series.half_width, strict=True))
    x = [*series.rounds, *reversed(series.rounds)]
    y = np.clip([mean + half for mean, half in pairs] + [mean - half for mean, half in reversed(pairs)], 0, 100)
    red, green, blue = (int(_colour(position)[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.09)", "line": {"width": 0}}
    return _trace(position, name, x=x, y=y, mode="lines", hoverinfo="skip", showlegend=False, **fill)


def _trace(position: int, name: str, **more: Any) -> go.Scatter:
    """A selector's: a click in the legend hides all of them. Names are text, and plotly reads them as HTML."""
    return go.Scatter(name=html.escape(name), legendgroup=str(position), **more)


def _colour(position: int) -> str:
    return COLOURS[position % len(COLOURS)]


def _figure(traces: list[Any], x: str, y: str, *, height: int = 420, unified: bool = False) -> go.Figure:
    """Without colours for text and background, which the page sets by light and dark."""
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": {"text": ""}}
    layout = {"template": {}, "height": height, "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "legend": legend}
    layout |= {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": len(traces) > 0}
    layout |= {
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "x unified" if unified else "closest",
    }
    layout |= {"modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#8C8C8C", "activecolor": "#8C8C8C"}}
    figure = go.Figure(traces, layout)
    figure.update_xaxes(unifiedhovertitle_text=f"{x} %{{x}}")
    axis = {"automargin": True, "zeroline": False, "title_font_size": 13}
    return figure.update_xaxes(title_text=x, **axis).update_yaxes(title_text=y, **axis)
