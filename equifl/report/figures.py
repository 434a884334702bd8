"""The figures of the report, from its numbers: each with a caption in plain words and the data behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from equifl.experiment.names import display_name
from equifl.experiment.task_table import Score
from equifl.report.numbers import Numbers, Ranked, Series
from equifl.report.styles import STYLES, band, counts, figure, line, style, trace

MOST_CELLS = 200_000  # of all maps together: a quarter of a megabyte, and all that a screen has room for
MOST_POINTS = 3_000  # of all scatter plots together: a browser draws each of them as an element of its own

Rows = list[list[Any]]


def _over_rounds_of(score: Score) -> dict[str, tuple[str, str, str]]:
    """Of a selector's series: title, caption and axis."""
    said, means = f"{score.word} of the shared model on all test examples", score.word
    axis = f"dissimilarity of {score.word}"
    if score.percent:
        said, means = "How many of all test examples the shared model gets right", "accuracies, in points"
        axis = "dissimilarity, points"
    return {
        "score": (
            f"{_capital(score.word)} over rounds",
            f"{said}; higher is better.",
            score.axis,
        ),
        "dissimilarity": (
            "Dissimilarity over rounds",
            f"Mean difference between two clients' {means}; lower is fairer.",
            axis,
        ),
        "worst10": (
            "Worst 10 % over rounds",
            f"Mean {score.word} of the tenth of the clients that is served worst in that round; higher is fairer.",
            score.axis,
        ),
    }


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
    drawings = [_over_rounds(name, *words, numbers) for name, words in _over_rounds_of(numbers.score).items()]
    drawings += [_plane(numbers), _clients(numbers), _map(numbers), _counts(numbers), _scatter(numbers)]
    return [*drawings, *_terms(numbers), _bytes(numbers)]


def _over_rounds(name: str, title: str, caption: str, axis: str, numbers: Numbers) -> Drawing:
    """The line of each selector over rounds, of its `name`."""
    if numbers.seeds > 1:
        caption = f"{caption[:-1]}; lines are means over {numbers.seeds} seeds, bands their 95 % intervals."
    data: Rows = [["selector", "round", "mean", "half_width_95"]]
    limits = (0.0, np.inf) if name == "dissimilarity" and not numbers.score.percent else _limits(numbers.score)
    bands, lines = [], []
    for position, (selector, found) in enumerate(numbers.selectors.items()):
        series: Series = getattr(found, name)
        if numbers.seeds > 1:
            bands.append(band(position, selector, series.rounds, series.mean, series.half_width, limits))
        lines.append(line(position, selector, series.rounds, series.mean, _hover(numbers.score)))
        triples = zip(series.rounds, series.mean, series.half_width, strict=True)
        data += [[selector, *triple] for triple in triples]
    drawn = figure([*bands, *lines], "round", axis, unified=True)
    named = numbers.score.key if name == "score" else name
    return Drawing(named, title, caption + _legend_note(numbers), {"": drawn}, data)


def _plane(numbers: Numbers) -> Drawing:
    caption = (
        "Each small mark is one seed at its last evaluation, each large one a selector's mean; "
        "the best place is top left."
    )
    score = numbers.score
    data: Rows = [["selector", "seed", score.key, "dissimilarity"]]
    traces = []
    percent, digits = " %" if score.percent else "", score.digits
    hover = f"{score.word} %{{y:.{digits}f}}{percent}<br>dissimilarity %{{x:.{digits}f}}"
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        x, y = [p.dissimilarity for p in selector.plane], [p.score for p in selector.plane]
        seeds = [p.seed for p in selector.plane]
        look = {"color": style(position).colour, "symbol": style(position).symbol}
        small = trace(position, name, x=x, y=y, mode="markers", marker={**look, "size": 8, "opacity": 0.5})
        small.update(customdata=seeds, showlegend=False, hovertemplate=f"seed %{{customdata}}<br>{hover}")
        large = trace(position, name, x=[np.mean(x)], y=[np.mean(y)], mode="markers", marker={**look, "size": 15})
        traces += [small, large.update(hovertemplate=f"mean<br>{hover}")]
        data += [[name, *point] for point in zip(seeds, y, x, strict=True)]
    return Drawing(
        "plane",
        f"Fairness and {score.word} together",
        caption + _legend_note(numbers),
        {"": figure(traces, f"dissimilarity{', points' if percent else ''} (less is fairer)", score.axis)},
        data,
    )


def _clients(numbers: Numbers) -> Drawing:
    found = {name: selector.clients for name, selector in numbers.selectors.items()}
    score = numbers.score
    drawn = _by_rank(found, numbers, _hover(score), "rank, worst served first", score.axis, _limits(score))
    tenth = max(ranked.tenth for ranked in found.values())
    drawn.add_vrect(x0=0.5, x1=tenth + 0.5, fillcolor="#8C8C8C", opacity=0.18, line_width=0)
    caption = f"Every client's {score.word} at the last evaluation, from the worst served to the best. "
    caption += _whose(numbers) + "The shaded part is the worst 10 %"
    if numbers.same_clients and numbers.seeds > 1:
        caption += " of these means; the table takes the worst 10 % of each seed"
    data: Rows = [["selector", "rank", "client", score.key, "half_width_95", "worst_10_percent"]]
    for name, ranked in found.items():
        data += [[name, *row, int(row[0] <= ranked.tenth)] for row in ranked.rows()]
    title = f"{_capital(score.word)} of every client"
    return Drawing("clients", title, f"{caption}.{_legend_note(numbers)}", {"": drawn}, _named(data, numbers))


def _by_rank(
    found: dict[str, Ranked], numbers: Numbers, value: str, x: str, y: str, limits: tuple[float, float]
) -> go.Figure:
    """A line a selector through its clients in their order, with bands where there are several seeds."""
    bands, lines = [], []
    for position, (name, ranked) in enumerate(found.items()):
        ranks = list(range(1, len(ranked.mean) + 1))
        if not np.isnan(ranked.half_width).all():
            bands.append(band(position, name, ranks, ranked.mean, ranked.half_width, limits))
        hover = value if ranked.ids is None else f"{value} (client %{{customdata}})"
        lines.append(line(position, name, ranks, ranked.mean, hover, customdata=numbers.called(ranked.ids)))
    drawn = figure([*bands, *lines], x, y, unified=True)
    return drawn.update_xaxes(unifiedhovertitle_text="rank %{x}")


def _named(data: Rows, numbers: Numbers) -> Rows:
    """With a last column, the names of clients, where there are any."""
    if not numbers.names:
        return data
    place = data[0].index("client")
    return [[*data[0], "name"], *([*row, numbers.names.get(row[place], "")] for row in data[1:])]


def _limits(score: Score) -> tuple[float, float]:
    """Between which a score can be."""
    return (0.0, 100.0) if score.percent else (-np.inf, np.inf)


def _hover(score: Score) -> str:
    return f"%{{y:.{score.digits}f}}"


def _capital(word: str) -> str:
    """Accuracy, where a title begins with it; a name of one's own stays as it is."""
    return "Accuracy" if word == "accuracy" else word


def _whose(numbers: Numbers) -> str:
    """What a mean over seeds is a mean of."""
    if numbers.seeds == 1:
        return ""
    over = f"over {numbers.seeds} seeds, bands their 95 % intervals"
    if numbers.same_clients:
        return f"A client is the same in every seed: lines are each client's mean {over}, sorted after that. "
    return f"Every seed has its own clients, sorted within the seed: lines are means by rank {over}. "


def _legend_note(numbers: Numbers) -> str:
    if len(numbers.selectors) <= STYLES:
        return ""
    return f" Styles repeat after {STYLES} selectors: click a name to see it alone, and any name to see all again."


def _map(numbers: Numbers) -> Drawing:
    shown = max(1, min(numbers.played, MOST_CELLS // (numbers.clients * len(numbers.selectors))))
    part = "" if shown == numbers.played else f"; the first {shown} of {numbers.played} rounds"
    seed = next(iter(numbers.selectors.values())).participation.seed
    caption = f"Who took part in which round, of seed {seed}: a row is a client, a column a round{part}."
    data: Rows = [["selector", "client", "round"]]
    panels = {}
    for position, (name, selector) in enumerate(numbers.selectors.items()):
        selected = selector.participation.selected[:, :shown]
        scale = [[0, "rgba(128,128,128,0.08)"], [1, style(position).colour]]
        heat = go.Heatmap(z=selected, x0=1, dx=1, zmin=0, zmax=1, colorscale=scale, showscale=False)
        heat.update(hovertemplate="client %{y}, round %{x}: %{z}<extra>1 = took part</extra>")
        panel = panels[display_name(name)] = figure([heat], "round", "client", height=290)
        panel.update_yaxes(autorange="reversed", showgrid=False).update_xaxes(showgrid=False)
        data += [[name, int(client), int(round) + 1] for client, round in np.argwhere(selected)]
    return Drawing("map", "Who took part when", caption, panels, data)


def _counts(numbers: Numbers) -> Drawing:
    found = {name: selector.participation.counts for name, selector in numbers.selectors.items()}
    value = "%{y:.1f} times" if numbers.seeds > 1 else "%{y:d} times"
    axes = "rank, most often selected first", "times selected"
    drawn = _by_rank(found, numbers, value, *axes, (0, numbers.played))
    drawn.update_traces(line_shape="hvh").update_yaxes(rangemode="tozero")
    caption = "How often each client took part, from the most often selected to the least; a flat line is an equal "
    caption += f"share. {_whose(numbers)}".rstrip()
    data: Rows = [["selector", "rank", "client", "times_selected", "half_width_95"]]
    data += [[name, *row] for name, ranked in found.items() for row in ranked.rows()]
    return Drawing(
        "counts",
        "How often each client took part",
        caption + _legend_note(numbers),
        {"": drawn},
        _named(data, numbers),
    )


def _scatter(numbers: Numbers) -> Drawing:
    shown = {name: selector.scatter for name, selector in numbers.selectors.items()}
    total, most = len(next(iter(shown.values()))), MOST_POINTS // len(shown)
    score = numbers.score
    caption = "Each mark is one client of one seed: how often it was selected up to the last evaluation, and its "
    caption += f"{score.word} then; where marks rise to the right, those who are selected more are served better."
    if total > most:  # of all selectors the same
        chosen = np.sort(np.random.default_rng(0).choice(total, most, replace=False)).tolist()
        shown = {name: [points[i] for i in chosen if i < len(points)] for name, points in shown.items()}
        caption += f" Shown are {most:,} of {total:,} marks, drawn at random, the same clients for every selector."
    data: Rows = [["selector", "seed", "client", "times_selected", score.key]]
    panels = {}
    last = max(point.times for points in shown.values() for point in points)
    everyone = [point.score for points in shown.values() for point in points]
    low, high = (0.0, 100.0) if score.percent else (min(everyone), max(everyone))
    percent, margin = " %" if score.percent else "", 0.04 * (high - low) or 1.0
    for position, (name, points) in enumerate(shown.items()):
        look = {"color": style(position).colour, "symbol": style(position).symbol, "size": 7, "opacity": 0.5}
        dots = trace(position, name, x=counts([p.times for p in points]), mode="markers", marker=look)
        dots.update(y=np.array([p.score for p in points], np.float32), showlegend=False)
        dots.update(customdata=counts([[p.client, p.seed] for p in points]))
        who = "client %{customdata[0]}, seed %{customdata[1]}"
        if numbers.names:  # and one seed
            who = "client %{customdata}"
            dots.update(customdata=numbers.called([p.client for p in points]))
        hover = f"{who}<br>%{{x}} times, {_hover(score)}{percent}<extra></extra>"
        panel = figure([dots.update(hovertemplate=hover)], "times selected", score.axis, height=290)
        panels[display_name(name)] = panel
        panel.update_yaxes(range=[low - margin, high + margin])
        panel.update_xaxes(range=[-0.05 * last - 0.1, 1.05 * last + 0.1], dtick=1 if last <= 10 else None)
        data += [[name, p.seed, p.client, p.times, p.score] for p in points]
    title = f"{_capital(score.word)} against times selected"
    return Drawing("scatter", title, caption, panels, _named(data, numbers))


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
                traces.append(line(position, name, series.rounds, series.mean, "%{y:.3~g}"))
                triples = zip(series.rounds, series.mean, series.half_width, strict=True)
                data += [[name, term, *triple] for triple in triples]
        panels[_TERMS.get(term, term)] = figure(traces, "round", term, height=320, unified=True)
    caption = "What each round's cohort was worth in the terms that its selector maximises, mean over seeds."
    return [Drawing("terms", "What the selectors maximise", caption + _legend_note(numbers), panels, data)]


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
            traces.append(line(position, name, series.rounds, scaled, "%{y:.4~g}"))
        panels[heading] = figure(traces, "round", unit, height=320, unified=True)
        panels[heading].update_yaxes(rangemode="tozero")
    for name, selector in selectors:
        totals = zip(selector.down.rounds, selector.down.mean, selector.up.mean, strict=True)
        data += [[name, *total] for total in totals]
    caption = "Bytes that one run has sent since its beginning, mean over seeds; lines may lie on each other."
    return Drawing("bytes", "What it costs to send", caption + _legend_note(numbers), panels, data)
