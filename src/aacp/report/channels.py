"""Kept channels: the share of its width that each group keeps, in network order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.report.chart import BLUE, GREY, PALE, SHADES, axis, hover, layout, words
from aacp.report.html import Figure
from aacp.report.numbers import percent
from aacp.report.run import Run

# Without a width of its own, a bar is as wide as the smallest distance within its trace, and covers other bars.
BAR_WIDTH = 0.75
NAMED = 30  # with more groups than this the axis names stages, because more names do not fit on a phone


def kept_counts(graph: ChannelGraph, counts: Sequence[int] | None) -> list[int]:
    """The units that each group keeps; frozen groups, and all groups without counts, keep everything."""
    free = iter(graph.full if counts is None else counts)
    return [group.width if group.frozen is not None else next(free) for group in graph.groups]


def layers_of(group: ChannelGroup, graph: ChannelGraph) -> list[str]:
    """The layers that produce the group's channels."""
    return list(graph.producer_names(group)) or [group.name]


def channels_figure(run: Run) -> Figure | None:
    """A bar for each group: the share of its width that is kept or, before a search, its width."""
    if run.graph is None or not run.graph.groups:
        return None
    graph, is_chosen = run.graph, run.choice is not None
    kept = kept_counts(graph, run.choice.counts if run.choice else None)
    bars = [bar for bar in (_bars(graph, kept, is_chosen, is_frozen) for is_frozen in (False, True)) if bar["x"]]
    title = "kept of each group, %" if is_chosen else "channels"
    y = axis(title, {"range": [0, 104], "dtick": 25} if is_chosen else {"rangemode": "tozero"})
    return Figure(
        "channels",
        _caption(graph, kept, is_chosen),
        [*([_whole(len(kept))] if is_chosen else []), *bars],
        layout(named_axis([group.name for group in graph.groups]), y, {"barmode": "overlay"}),
        400,
    )


HATCHED = {"color": GREY, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}}


def _bars(graph: ChannelGraph, kept: Sequence[int], is_chosen: bool, is_frozen: bool) -> dict[str, Any]:
    """The bars of the groups that may be pruned, or of those that may not."""
    pairs = list(zip(graph.groups, kept, strict=True))
    heights = [100 * count / g.width if is_chosen else count * g.unit_channels for g, count in pairs]
    places = [place for place, group in enumerate(graph.groups) if (group.frozen is not None) == is_frozen]
    return {
        "type": "bar",
        "name": "frozen" if is_frozen else "kept" if is_chosen else "free",
        "x": places,
        "y": [heights[place] for place in places],
        "width": BAR_WIDTH,
        "hovertext": [_hover(*pairs[place], graph) for place in places],
        "hoverinfo": "text",
        "marker": HATCHED if is_frozen else {"color": BLUE},
    }


def _whole(groups: int) -> dict[str, Any]:
    """Pale bars for the unpruned widths, behind the others."""
    bars = {"type": "bar", "name": "unpruned", "x": list(range(groups)), "y": [100] * groups}
    return {**bars, "width": BAR_WIDTH, "hoverinfo": "skip", "marker": {"color": PALE}}


def _caption(graph: ChannelGraph, kept: Sequence[int], is_chosen: bool) -> str:
    frozen = len(graph.groups) - len(graph.free)
    hatched = " Hatched: groups that cannot be pruned." if frozen else ""
    if not is_chosen:
        return f"Channels of each group, in network order.{hatched}"
    full = sum(group.width * group.unit_channels for group in graph.groups)
    left = sum(count * group.unit_channels for count, group in zip(kept, graph.groups, strict=True))
    return (
        f"The share that each group of coupled channels keeps, in network order: {left:,} of {full:,} channels, "
        f"{percent(left / full)}. Channels that several layers share are counted once.{hatched}"
    )


def _hover(group: ChannelGroup, count: int, graph: ChannelGraph) -> str:
    unit = group.unit_channels
    lines = [group.name, f"{count * unit} of {group.width * unit} channels ({percent(count / group.width)})"]
    names = layers_of(group, graph)
    shown = [", ".join(names[start : start + 3]) for start in range(0, min(len(names), 12), 3)]
    lines += [f"layers: {shown[0]}", *shown[1:]]
    if len(names) > 12:
        lines.append(f"and {len(names) - 12} more")
    return hover(*lines, *([f"frozen: {group.frozen}"] if group.frozen is not None else []))


def named_axis(names: Sequence[str]) -> dict[str, Any]:
    """An axis of groups or blocks: a label for each or, if there are too many, one for each stage."""
    if len(names) <= NAMED:
        places, texts = list(range(len(names))), [_short(name) for name in names]
    else:
        places, texts = _stages(names)
    ticks = {"tickmode": "array", "tickvals": places, "ticktext": [words(text) for text in texts], "tickangle": -90}
    return axis("", {**ticks, "range": [-0.6, len(names) - 0.4], "showgrid": False, "tickfont": {"size": 10}})


def _stages(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """The position and name of each stage: the shortest prefix of the names that gives at least three stages."""
    runs: list[tuple[int, str]] = []
    for depth in (1, 2, 3):
        keys = [(".".join(name.split(".")[:depth]), place) for place, name in enumerate(names)]
        runs = [(next(members)[1], key) for key, members in groupby(keys, key=lambda pair: pair[0])]
        if len(runs) >= 3:
            break
    thinned = runs[:: -(-len(runs) // NAMED)]
    return [place for place, _ in thinned], [_short(key) for _, key in thinned]


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def channels_of_runs(runs: Sequence[Run]) -> Figure | None:
    """A row for each run of one network, shaded by what each group keeps."""
    chosen = [run for run in runs if run.graph is not None and run.choice is not None]
    graphs = [run.graph for run in chosen if run.graph is not None]
    if len(chosen) < 2 or any(graph.groups != graphs[0].groups for graph in graphs):
        return None
    rows, texts = [], []
    for run in chosen:
        assert run.choice is not None
        kept = list(zip(graphs[0].groups, kept_counts(graphs[0], run.choice.counts), strict=True))
        rows.append([100 * count / group.width for group, count in kept])
        texts.append([f"{words(run.name)}<br>{_hover(group, count, graphs[0])}" for group, count in kept])
    bar = {"title": {"text": "kept, %"}, "thickness": 10, "outlinewidth": 0}
    trace = {"type": "heatmap", "z": rows, "hovertext": texts, "hoverinfo": "text", "xgap": 1, "ygap": 1}
    y = axis("", {"tickvals": list(range(len(chosen))), "ticktext": [words(_short(run.name)) for run in chosen]})
    return Figure(
        "channels-of-runs",
        "The share of each group that each run keeps, in network order; darker is more.",
        [{**trace, "colorscale": SHADES, "zmin": 0, "zmax": 100, "colorbar": bar}],
        layout(
            named_axis([group.name for group in graphs[0].groups]), {**y, "autorange": "reversed", "showgrid": False}
        ),
        200 + 26 * len(chosen),
    )
