"""How the figures look: a selector's colour, dash and marker, and the lines, bands and axes made of them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from equifl.experiment.names import display_name

# Okabe and Ito's colours, distinct for the colour-blind, without black and yellow: invisible on dark and white.
# Grey and a dark red stand for them.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C8C", "#C2213A")
DASHES = ("solid", "10px,5px", "3px,3px", "8px,3px,2px,3px")  # for lines that coincide, and printers without colours
SYMBOLS = {  # plotly's markers, each as the path of an SVG with radius 1, for the table
    "circle": "M1,0A1,1 0 1,1 -1,0A1,1 0 1,1 1,0Z",
    "square": "M-1,-1H1V1H-1Z",
    "diamond": "M1.3,0L0,1.3L-1.3,0L0,-1.3Z",
    "cross": "M1.2,.4H.4V1.2H-.4V.4H-1.2V-.4H-.4V-1.2H.4V-.4H1.2Z",
    "x": "M0,.57L.57,1.13L1.13,.57L.57,0L1.13,-.57L.57,-1.13L0,-.57L-.57,-1.13L-1.13,-.57L-.57,0L-1.13,.57L-.57,1.13Z",
    "triangle-up": "M-1.15,.6H1.15L0,-1.2Z",
    "triangle-down": "M-1.15,-.6H1.15L0,1.2Z",
    "bowtie": "M-1.1,-1.1L1.1,1.1V-1.1L-1.1,1.1Z",
}
STYLES = 2 * len(COLOURS)  # so many selectors look different
BAND = "interval"  # the `meta` of a band, by which the page finds all of them
MARKERS = 12  # on a line, at most: enough to tell it from others, and the line is still seen


@dataclass(frozen=True)
class Style:
    """How one selector is drawn, everywhere."""

    colour: str
    dash: str
    symbol: str

    @property
    def path(self) -> str:
        """The marker as the path of an SVG, with radius 1."""
        return SYMBOLS[self.symbol]


def style(position: int) -> Style:
    """The style of the selector at this position of the configuration; after 16 they begin again.

    The second eight have the colours of the first, each with another dash (solid for the longest pattern, dots for
    dashes, and the other way round) and another marker.
    """
    again, colour = divmod(position % STYLES, len(COLOURS))
    dash = colour % len(DASHES)
    symbol = (colour + again * len(SYMBOLS) // 2) % len(SYMBOLS)
    return Style(COLOURS[colour], DASHES[-1 - dash if again else dash], list(SYMBOLS)[symbol])


def line(position: int, name: str, x: Sequence[int], y: Sequence[float], hover: str, **more: Any) -> go.Scatter:
    """A selector's line, with a marker here and there."""
    look = style(position)
    return trace(
        position,
        name,
        x=counts(x),
        y=np.asarray(y, np.float32),
        mode="lines+markers",
        line={"color": look.colour, "dash": look.dash, "width": 2},
        marker={"symbol": look.symbol, "size": 7, "maxdisplayed": MARKERS},
        hovertemplate=hover,
    ).update(**more)


def band(
    position: int,
    name: str,
    x: Sequence[int],
    mean: Sequence[float],
    half_width: Sequence[float],
    limits: tuple[float, float],
) -> go.Scatter:
    """The 95 % interval around a line, cut at the least and the most that is possible: of two seeds it may be huge."""
    half = np.nan_to_num(half_width)  # 0 where only one seed knows the value
    low, high = (np.clip(np.array(mean) + sign * half, *limits) for sign in (-1, 1))
    red, green, blue = (int(style(position).colour[i : i + 2], 16) for i in (1, 3, 5))
    return trace(
        position,
        name,
        x=counts([*x, *reversed(x)]),
        y=np.concatenate([high, low[::-1]]).astype(np.float32),
        mode="lines",
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.09)",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        meta=BAND,
    )


def counts(values: Sequence[int] | Sequence[Sequence[int]]) -> NDArray[np.unsignedinteger[Any]]:
    """Whole numbers from 0 in as few bytes as hold them: they make up much of a page about many clients."""
    whole = np.asarray(values, np.int64)
    return whole.astype(np.min_scalar_type(whole.max(initial=0)))


def trace(position: int, name: str, **more: Any) -> go.Scatter:
    """A selector's: a click in the legend hides all of them. Names are text, and plotly reads them as HTML."""
    return go.Scatter(name=html.escape(display_name(name)), legendgroup=str(position), **more)


def figure(traces: list[Any], x: str, y: str, *, height: int = 420, unified: bool = False) -> go.Figure:
    """Axes, legend and hover labels, without colours for text and background, which the page sets by light and dark.

    With more selectors than styles, a click in the legend shows one alone.
    """
    crowded = sum(one.showlegend is not False for one in traces) > STYLES
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": {"text": ""}}
    legend["maxheight"] = 10_000  # pixels: the page makes the figure higher, so that no legend scrolls
    legend |= {"itemclick": "toggleothers", "itemdoubleclick": "toggle"} if crowded else {}
    layout = {"template": {}, "height": height, "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "legend": legend}
    layout |= {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": True}
    layout |= {
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "x unified" if unified and not crowded else "closest",
    }
    made = go.Figure(traces, layout)
    whole = [one.x for one in traces if isinstance(one.x, np.ndarray) and one.x.dtype.kind == "u"]
    if len(whole) == len(traces) and all(values.max(initial=0) <= 10 for values in whole):
        made.update_xaxes(dtick=1)  # no label at half a round or half a rank
    made.update_xaxes(unifiedhovertitle_text=f"{x} %{{x}}")
    axis = {"automargin": True, "zeroline": False, "title_font_size": 13}
    return made.update_xaxes(title_text=x, **axis).update_yaxes(title_text=y, **axis)
