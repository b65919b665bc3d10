"""Blocks: the share of its channels that each block of a network keeps, for one run or several (the paper's Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence

from aacp.channels.graph import ChannelGraph
from aacp.report.channels import kept_counts, layers_of, named_axis
from aacp.report.chart import GREY, LINE_COLOURS, Trace, axis, hover, layout, line
from aacp.report.headline import limits_text
from aacp.report.html import Figure
from aacp.report.numbers import percent
from aacp.report.run import Run

MOST_RUNS = len(LINE_COLOURS)  # more lines than this cannot be distinguished

Members = dict[str, list[int]]  # the positions of the groups of each block


def block_of(layer: str) -> str:
    """The block that a layer belongs to, by its name.

    A block is a numbered part with named parts inside it: `layer1.0` of `layer1.0.conv1`, `features.3` of
    `features.3.conv.0.0`. A layer outside such a part is its own block.
    """
    parts = layer.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if parts[end - 1].isdigit() and not parts[end].isdigit():
            return ".".join(parts[:end])
    return layer


def blocks_of(graph: ChannelGraph) -> Members:
    """The groups inside each block, in network order.

    A group whose layers lie in several blocks, such as a residual stream, belongs to none of them. Blocks in which
    nothing can be pruned, such as the last layer, are left out.
    """
    members: Members = {}
    for place, group in enumerate(graph.groups):
        blocks = {block_of(layer) for layer in layers_of(group, graph)}
        if len(blocks) == 1:
            members.setdefault(blocks.pop(), []).append(place)
    return {
        block: places
        for block, places in members.items()
        if any(graph.groups[place].frozen is None for place in places)
    }


def kept_shares(graph: ChannelGraph, counts: Sequence[int]) -> dict[str, float]:
    """The share of its channels that each block keeps."""
    kept = kept_counts(graph, counts)
    found = {}
    for block, places in blocks_of(graph).items():
        units = [graph.groups[place].unit_channels for place in places]
        full = sum(graph.groups[place].width * unit for place, unit in zip(places, units, strict=True))
        left = sum(kept[place] * unit for place, unit in zip(places, units, strict=True))
        found[block] = left / full
    return found


def blocks_figure(runs: Sequence[Run]) -> Figure | None:
    """A line over the blocks for each run of one network, beside the unpruned network with all of its channels."""
    chosen = [run for run in runs if run.graph is not None and run.choice is not None]
    graphs = [run.graph for run in chosen if run.graph is not None]
    if not chosen or len(chosen) > MOST_RUNS or any(graph.groups != graphs[0].groups for graph in graphs):
        return None
    blocks = list(blocks_of(graphs[0]))
    if len(blocks) < 2:
        return None
    whole = line("unpruned", list(range(len(blocks))), [100] * len(blocks), {"color": GREY, "dash": "dot"})
    lines = [
        _line(run, graph, name, colour)
        for run, graph, name, colour in zip(chosen, graphs, _labels(chosen), LINE_COLOURS, strict=False)
    ]
    return Figure(
        "blocks",
        _caption(graphs[0]),
        [{**whole, "hoverinfo": "skip"}, *lines],
        layout(named_axis(blocks), axis("kept of each block, %", {"range": [0, 104], "dtick": 25})),
        400,
    )


def blocks_of_run(run: Run) -> Figure | None:
    """The figure for one run; None if each block is one group, as the channels of groups are shown anyway."""
    graph = run.graph
    if graph is None or all(
        [graph.groups[place].name for place in places] == [block] for block, places in blocks_of(graph).items()
    ):
        return None
    return blocks_figure([run])


def _line(run: Run, graph: ChannelGraph, name: str, colour: str) -> Trace:
    """One run: a line that is interrupted between stages, since blocks are compared within a stage."""
    assert run.choice is not None
    xs: list[int | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    stage = None
    for place, (block, share) in enumerate(kept_shares(graph, run.choice.counts).items()):
        if place and _stage(block) != stage:
            xs.append(None)
            ys.append(None)
            texts.append("")
        stage = _stage(block)
        xs.append(place)
        ys.append(100 * share)
        texts.append(hover(f"{block}: {percent(share)} kept", run.name))
    drawn = line(name, xs, ys, {"color": colour, "width": 2})
    return {**drawn, "mode": "lines+markers", "hovertext": texts, "hoverinfo": "text", "marker": {"size": 7}}


def _stage(block: str) -> str:
    """The part of a network that holds a block: `layer1` of `layer1.0`."""
    return block.rpartition(".")[0]


def _labels(runs: Sequence[Run]) -> list[str]:
    """The limits of each run if they distinguish the runs, otherwise their names."""
    limits = [limits_text(run.request.limits) if run.request else run.name for run in runs]
    return limits if len(set(limits)) == len(runs) else [run.name for run in runs]


def _caption(graph: ChannelGraph) -> str:
    shared = [group for group in graph.groups if len({block_of(layer) for layer in layers_of(group, graph)}) > 1]
    left_out = " Channels that several blocks share are left out." if shared else ""
    return f"The share of its own channels that each block keeps; the unpruned network keeps all.{left_out}"
