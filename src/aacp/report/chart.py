"""Chart: what all figures have in common: colours for light and dark pages, axes, legends, hover text."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

# Each has a contrast of at least 3 on light and dark pages, and colour-blind readers can distinguish them.
BLUE, AMBER, GREY = "#2f80b9", "#c77d1e", "#868b92"
LINE_COLOURS = (BLUE, AMBER, "#3a8f5c", "#9a5fb0", "#b5493f", "#5f6f86")  # of several lines in one chart
PALE = "rgba(134, 139, 146, 0.22)"
SHADES = [[0.0, "#f3e6c8"], [0.5, "#7fb0cf"], [1.0, "#14466e"]]  # from small values to large ones

Trace = dict[str, Any]


def words(text: object) -> str:
    """Text escaped for plotly, which interprets some tags as markup."""
    return html.escape(str(text), quote=False)


def hover(*lines: object) -> str:
    """Lines of a hover text, the first one in bold."""
    first, *rest = (words(line) for line in lines)
    return "<br>".join([f"<b>{first}</b>", *rest])


def axis(title: str = "", more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An axis without frame or zero line; its colours come from the style sheet."""
    named = {"title": {"text": words(title), "standoff": 10, "font": {"size": 12.5}}} if title else {}
    return {"zeroline": False, "automargin": True, "ticks": "", **named, **(more or {})}


def layout(x: Mapping[str, Any], y: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A plain plot with a legend above."""
    return {
        "xaxis": dict(x),
        "yaxis": dict(y),
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)"},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        **(more or {}),
    }


def points(name: str, x: Sequence[Any], y: Sequence[Any], texts: Sequence[str], marker: Mapping[str, Any]) -> Trace:
    """A scatter trace of points with hover texts."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "hovertext": list(texts),
        "hoverinfo": "text",
        "marker": dict(marker),
    }


def line(name: str, x: Sequence[Any], y: Sequence[Any], style: Mapping[str, Any], axes: str = "") -> Trace:
    """A line; `axes` is the number of its y axis, if it is not the first."""
    placed = {"yaxis": f"y{axes}"} if axes else {}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": dict(style),
        **placed,
    }


def vertical(x: float) -> dict[str, Any]:
    """A dashed line from bottom to top."""
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
    }
