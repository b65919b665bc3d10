"""Coordinates of a search: ties between groups, and the coordinates that the paper's authors searched.

A coordinate is what one gene of a search sets: the width of a group, or of several groups that are tied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.errors import InvalidOption, InvalidStructure
from aacp.user.options import advice_of_many

Ties = Iterable[Sequence[str]]


def tied(graph: ChannelGraph, ties: Ties) -> ChannelGraph:
    """The same graph with ties: a search gives the groups of a tie the same share of their widths.

    Args:
        graph: the graph, which may have ties already.
        ties: the names of the groups of each tie.
    """
    for tie in ties:
        graph = _with_tie(graph, tie)
    return graph


def _with_tie(graph: ChannelGraph, tie: Sequence[str]) -> ChannelGraph:
    if isinstance(tie, str) or len(tie) < 2:
        raise InvalidOption(f"tie={tie!r} does not name several groups. Give the names of two or more groups per tie.")
    groups = {group.name: group for group in graph.groups}
    taken = {name for known in graph.ties for name in known}
    for position, name in enumerate(tie):
        if name not in groups:
            known = advice_of_many(name, groups, "print(graph)")
            raise InvalidOption(f"The graph has no group {name!r} to tie. {known}")
        if (reason := groups[name].frozen) is not None:
            raise InvalidOption(
                f"Group {name!r} cannot be tied, since it is frozen: {reason}. Leave it out of the tie."
            )
        if name in taken or name in tie[:position]:
            raise InvalidOption(
                f"Group {name!r} is tied twice. Name each group once, and write groups with the same share as one tie."
            )
    return replace(graph, ties=(*graph.ties, tuple(tie)))


@dataclass(frozen=True)
class Preset:
    """The coordinates of one network.

    Args:
        network: the name that `aacp.build_model` builds the network by.
        convolutions: how many convolutions the network has; a larger network may have all of its groups and more.
        coordinates: the names of the groups that each gene sets; all other groups keep their widths.
    """

    network: str
    convolutions: int
    coordinates: tuple[tuple[str, ...], ...]

    def fits(self, graph: ChannelGraph) -> bool:
        """Whether the graph is one of this network."""
        convolutions = {layer.name for layer in graph.layers if layer.is_convolution}
        groups = {group.name for group in graph.groups}
        return len(convolutions) == self.convolutions and groups.issuperset(chain(*self.coordinates))


def _cifar_resnet(depth: int) -> Preset:
    """The first convolution of each residual block."""
    blocks = (depth - 2) // 6
    names = [f"layer{stage}.{block}.conv1" for stage in (1, 2, 3) for block in range(blocks)]
    return Preset(f"resnet{depth}", depth - 1, tuple((name,) for name in names))


def _resnet50() -> Preset:
    """The two inner convolutions of each bottleneck block, which share one gene."""
    stages = {1: 3, 2: 4, 3: 6, 4: 3}  # the number of blocks of each stage
    blocks = [f"layer{stage}.{block}" for stage, count in stages.items() for block in range(count)]
    return Preset("torchvision:resnet50", 53, tuple((f"{block}.conv1", f"{block}.conv2") for block in blocks))


def _vgg16() -> Preset:
    """All 13 convolutions; `features` also holds a batch norm and a ReLU for each, and a pooling between stages."""
    places = (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40)
    return Preset("vgg16", 13, tuple((f"features.{place}",) for place in places))


def _mobilenet_v2() -> Preset:
    """The stem, the expanded width of 16 blocks and the output width of 7 stages, but not the last convolution."""
    expanded = [f"features.{block}.conv.0.0" for block in range(2, 18)]
    outputs = ["features.1.conv.1", *(f"features.{first}.conv.2" for first in (2, 4, 7, 11, 14, 17))]
    names = ["features.0.0", *expanded, *outputs]
    return Preset("torchvision:mobilenet_v2", 52, tuple((name,) for name in names))


PAPER = (_cifar_resnet(56), _cifar_resnet(110), _vgg16(), _resnet50(), _mobilenet_v2())


def paper_coordinates(graph: ChannelGraph) -> ChannelGraph:
    """The same graph with the coordinates that the authors of the paper searched: other groups frozen, some tied."""
    preset = _preset_of(graph)
    free = set(chain(*preset.coordinates))
    ties = tuple(coordinate for coordinate in preset.coordinates if len(coordinate) > 1)
    others = [group.name for group in graph.groups if group.name not in free]
    reason = "not searched by the paper's authors (scope='paper')"
    return replace(graph, ties=(*graph.ties, *ties)).freeze(dict.fromkeys(others, reason))


def paper_structure(graph: ChannelGraph, counts: Sequence[int]) -> Structure:
    """The structure of a vector as the authors of the paper write it: one count per coordinate, in their order.

    MobileNetV2 has the stem and the expanded widths first, then the output widths of the stages. Free groups of the
    graph that are not coordinates of the authors keep their widths. A coordinate that is frozen in the graph has its
    full width as its count.
    """
    preset = _preset_of(graph)
    if len(counts) != len(preset.coordinates):
        raise InvalidStructure(
            f"The vector has {len(counts)} counts, but the authors' {preset.network} has {len(preset.coordinates)} "
            "coordinates. Give one count for each."
        )
    kept = {name: count for names, count in zip(preset.coordinates, counts, strict=True) for name in names}
    for group in graph.groups:
        if group.frozen is not None and kept.get(group.name, group.width) != group.width:
            raise InvalidStructure(
                f"The vector keeps {kept[group.name]} of the {group.width} units of {group.name!r}, but that group is "
                f"frozen: {group.frozen}. Give {group.width} as its count, or do not freeze it."
            )
    return Structure(kept.get(group.name, group.width) for group in graph.free)


def _preset_of(graph: ChannelGraph) -> Preset:
    preset = next((preset for preset in PAPER if preset.fits(graph)), None)
    if preset is None:
        known = ", ".join(preset.network for preset in PAPER)
        raise InvalidOption(
            f"scope='paper' is not defined for this {graph.model}, only for {known}. Choose scope 'all' or 'inner', "
            "and tie groups by name."
        )
    return preset
