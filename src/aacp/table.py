"""A channel graph as a table for people."""

from __future__ import annotations

from aacp.channels import ChannelGraph, ChannelGroup
from aacp.cost.analytic import macs, params


def describe(graph: ChannelGraph) -> str:
    """Groups, widths, members; what is frozen and why; what the network costs."""
    names = {layer.name for layer in graph.layers}
    rows = [(group.name, _width(group), _layers(group, names), group.frozen or "free") for group in graph.groups]
    heads = ("group", "channels", "layers", "state")
    widths = [min(60, max(len(row[column]) for row in [heads, *rows])) for column in range(4)]
    lines = [
        f"{graph.model}: {macs(graph).full:,} MACs, {params(graph).full:,} parameters; "
        f"{len(graph.free)} of {len(graph.groups)} groups free, {graph.free_share:.1%} of convolution channels",
        "  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)).rstrip(),
    ]
    for row in rows:
        cells = [_shortened(cell, 60).ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
        lines.append("  ".join([*cells, row[3]]))
    return "\n".join([*lines, *(f"note: {note}" for note in graph.notes)])


def _width(group: ChannelGroup) -> str:
    return str(group.width) if group.unit_channels == 1 else f"{group.width} x {group.unit_channels}"


def _layers(group: ChannelGroup, names: set[str]) -> str:
    """The layers that make the group's channels."""
    makers = dict.fromkeys(m.removesuffix(".weight[0]") for m in group.members if m.endswith(".weight[0]"))
    return ", ".join(name for name in makers if name in names) or group.name


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
