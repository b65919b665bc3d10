"""Ties of groups, and the coordinates of the paper's five networks."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.channels.coordinates import paper_coordinates, tied
from aacp.graph.unverified import trace_unverified
from aacp.zoo.models import build_model, example_input
from sampling import sampled

# Published by the authors beside their code. MobileNetV2: the stem and the expanded widths of the blocks, then the
# output widths of the seven stages, which their search left whole.
RELEASED = {
    "torchvision:resnet50": (32, 24, 24, 64, 48, 64, 64, 224, 128, 128, 128, 128, 192, 512, 512, 512),
    "torchvision:mobilenet_v2": (
        24, 84, 90, 126, 96, 48, 192, 144, 96, 48, 384, 504, 144, 576, 720, 720, 720, 16, 24, 32, 64, 96, 160, 320,
    ),
}  # fmt: skip


@cache
def traced(name: str) -> tuple[nn.Module, aacp.ChannelGraph]:
    """A network and its graph, without the verification by cuts, which other tests cover."""
    model = build_model(name).eval()
    return model, trace_unverified(model, example_input(model))[1].graph


def widths(model: nn.Module) -> dict[str, int]:
    """The output channels of every convolution, by name."""
    return {name: layer.out_channels for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)}


# -- the convolutions that each coordinate narrows, written from the definitions of the networks -----------------------


def first_convolutions_of_blocks(blocks: int) -> list[set[str]]:
    return [{f"layer{stage}.{block}.conv1"} for stage in (1, 2, 3) for block in range(blocks)]


def inner_convolutions_of_bottlenecks() -> list[set[str]]:
    stages = [3, 4, 6, 3]
    return [
        {f"layer{stage}.{block}.conv1", f"layer{stage}.{block}.conv2"}
        for stage, blocks in enumerate(stages, start=1)
        for block in range(blocks)
    ]


def convolutions_of_vgg16(model: nn.Module) -> list[set[str]]:
    return [{name} for name in widths(model)]


def inverted_residuals(model: nn.Module) -> list[set[str]]:
    """Of each expanded width the pointwise and the depthwise convolution, of each stage all its projections."""
    names = list(widths(model))
    of_block = [[name for name in names if name.startswith(f"features.{block}.")] for block in range(18)]
    expanded = [{of_block[0][0], of_block[1][0]}, *({block[0], block[1]} for block in of_block[2:])]
    repeats = (1, 2, 3, 4, 3, 3, 1)  # the blocks of each stage, from Table 2 of Sandler et al.
    first = [1 + sum(repeats[:stage]) for stage in range(7)]
    stages = [
        {of_block[block][-1] for block in range(start, start + count)}
        for start, count in zip(first, repeats, strict=True)
    ]
    return [*expanded, *stages]


def coordinates_by_definition(name: str, model: nn.Module) -> list[set[str]]:
    if name == "vgg16":
        return convolutions_of_vgg16(model)
    if name == "torchvision:resnet50":
        return inner_convolutions_of_bottlenecks()
    if name == "torchvision:mobilenet_v2":
        return inverted_residuals(model)
    return first_convolutions_of_blocks({"resnet56": 9, "resnet110": 18}[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    sampled(
        [
            ("resnet56", 27),
            ("resnet110", 54),
            ("vgg16", 13),
            ("torchvision:resnet50", 16),
            ("torchvision:mobilenet_v2", 24),
        ],
        3,
    ),
)
def test_each_coordinate_of_the_paper_narrows_the_convolutions_of_its_definition(name: str, count: int) -> None:
    model, graph = traced(name)
    graph = paper_coordinates(graph)
    space = aacp.SearchSpace(graph, 1 / 8)
    assert len(space) == count
    assert narrowed_by_gene(model, graph, space) == coordinates_by_definition(name, model)


def narrowed_by_gene(model: nn.Module, graph: aacp.ChannelGraph, space: aacp.SearchSpace) -> list[set[str]]:
    """The convolutions that each gene narrows, in the order of the definitions.

    In cut number b, the genes are halved whose number, counted from 1, has bit b. The cuts in which a convolution is
    narrow are therefore the bits of the number of its gene.
    """
    whole = widths(model)
    numbers = dict.fromkeys(whole, 0)
    for bit in range(len(space).bit_length()):
        halved = [(number >> bit) & 1 for number in range(1, len(space) + 1)]
        genes = np.where(halved, 3, space.levels - 1)
        for layer, width in widths(aacp.shrink(model, graph, space.structure(genes))).items():
            assert width in (whole[layer], whole[layer] / 2)
            numbers[layer] |= int(width != whole[layer]) << bit
    found = [{layer for layer in whole if numbers[layer] == number} for number in range(1, len(space) + 1)]
    return sorted(found, key=order_of_definitions)


def order_of_definitions(layers: set[str]) -> tuple[bool, list[int]]:
    """Stage outputs of MobileNetV2 come last, as in the authors' vector; otherwise the order is that of the layers."""
    is_output = any(layer == "features.1.conv.1" or layer.endswith("conv.2") for layer in layers)
    return is_output, min([int(part) for part in re.findall(r"\d+", layer)] for layer in layers)


def counted(model: nn.Module, *, elementwise: bool) -> int:
    """Multiply-accumulates of convolutions and linear layers; with `elementwise`, an operation per number elsewhere."""
    total = 0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output.numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel() + elementwise * layer.bias.numel()
        elif isinstance(layer, nn.BatchNorm2d | nn.ReLU):
            total += elementwise * inputs[0].numel()
        elif isinstance(layer, nn.MaxPool2d):
            total += elementwise * layer.kernel_size**2 * output.numel()

    hooks = [layer.register_forward_hook(count) for layer in model.modules()]
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stated", "macs"),
    [
        # The paper states -42.0 % and -30.2 %. With the authors' way of counting, in which norms, activations and
        # poolings cost something too, the structures have -42.0 % and -30.1 %.
        ("torchvision:resnet50", 0.420, 0.4217),
        ("torchvision:mobilenet_v2", 0.301, 0.3017),
    ],
)
def test_the_released_structures_have_the_stated_costs(name: str, stated: float, macs: float) -> None:
    model, graph = traced(name)
    graph = paper_coordinates(graph)
    space = aacp.SearchSpace(graph)
    expected = coordinates_by_definition(name, model)
    kept = {layer: count for layers, count in zip(expected, RELEASED[name], strict=True) for layer in layers}
    structure = aacp.Structure(kept[graph.producer_names(group)[0]] for group in graph.free)
    assert structure == aacp.paper_structure(graph, RELEASED[name])
    assert structure in space
    smaller = aacp.shrink(model, graph, structure)
    assert {layer: width for layer, width in widths(smaller).items() if layer in kept} == kept
    cost = aacp.macs(graph)
    assert cost(structure) == counted(smaller, elementwise=False)
    assert 1 - cost(structure) / cost.full == pytest.approx(macs, abs=5e-5)
    removed = 1 - counted(smaller, elementwise=True) / counted(model, elementwise=True)
    assert removed == pytest.approx(stated, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet20", "torchvision:resnet18"])
def test_a_network_without_coordinates_of_the_paper_is_rejected_with_those_that_have_them(name: str) -> None:
    _, graph = traced(name)
    with pytest.raises(aacp.InvalidOption) as caught:
        paper_coordinates(graph)
    for known in ("resnet56", "resnet110", "vgg16", "torchvision:resnet50", "torchvision:mobilenet_v2"):
        assert known in str(caught.value)
    assert str(caught.value).count(". ") == 1


@pytest.mark.slow
def test_a_layer_frozen_by_hand_leaves_the_coordinates_of_the_paper() -> None:
    _, graph = traced("torchvision:resnet50")
    found = paper_coordinates(graph.freeze({"layer1.0.conv1": "by hand", "layer2.0.conv1": "by hand"}))
    space = aacp.SearchSpace(found)
    assert len(space) == 16
    assert len(found.free) == 30
    assert [len(tie) for tie in found.ties] == [2] * 14


@pytest.mark.slow
def test_groups_that_the_authors_did_not_search_keep_their_widths() -> None:
    _, graph = traced("torchvision:mobilenet_v2")
    structure = aacp.paper_structure(graph, RELEASED["torchvision:mobilenet_v2"])
    kept = {group.name: count for group, count in zip(graph.free, structure, strict=True)}
    assert (kept["features.18.0"], kept["features.0.0"]) == (1280, 24)
    with pytest.raises(aacp.InvalidStructure, match="has 2 counts, but the authors' torchvision:mobilenet_v2 has 24"):
        aacp.paper_structure(graph, [24, 84])


@pytest.mark.slow
def test_a_vector_that_narrows_a_frozen_coordinate_is_rejected() -> None:
    _, graph = traced("torchvision:mobilenet_v2")
    graph = graph.freeze({"features.0.0": "by hand"})
    first, *others = RELEASED["torchvision:mobilenet_v2"]
    words = "keeps 24 of the 32 units of 'features.0.0', but that group is frozen: by hand. Give 32"
    with pytest.raises(aacp.InvalidStructure, match=words):
        aacp.paper_structure(graph, [first, *others])
    structure = aacp.paper_structure(graph, [32, *others])
    assert len(structure) == len(graph.free)


# -- ties --------------------------------------------------------------------------------------------------------------


class Chain(nn.Sequential):
    """Four convolutions, the last of which is the output."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 4, 1))


def test_trace_ties_groups_by_name_and_says_so() -> None:
    graph = aacp.trace(Chain(), torch.randn(1, 3, 4, 4), tie=[("0", "2")])
    assert graph.ties == (("0", "2"),)
    states = [line.split("  ")[-1].strip() for line in str(graph).splitlines()[2:]]
    assert states == ["free, tied to 2", "free", "free, tied to 0", "network output"]
    assert aacp.ChannelGraph.from_json(graph.to_json()) == graph
    assert len(aacp.SearchSpace(graph)) == 2


def test_a_graph_of_an_older_file_has_no_ties() -> None:
    data = aacp.trace(Chain(), torch.randn(1, 3, 4, 4)).to_json()
    del data["ties"]
    assert aacp.ChannelGraph.from_json(data).ties == ()


def test_a_group_that_is_frozen_later_leaves_its_tie() -> None:
    graph = aacp.trace(Chain(), torch.randn(1, 3, 4, 4), tie=[("0", "1", "2")])
    assert graph.freeze({"1": "why not"}).ties == (("0", "2"),)
    assert graph.freeze({"1": "why not", "2": "why not"}).ties == ()


@pytest.mark.parametrize(
    ("ties", "words"),
    [
        ([("0", "7")], "no group '7' to tie. print"),
        ([("0", "3")], "Group '3' cannot be tied, since it is frozen: network output. Leave"),
        ([("0", "1"), ("1", "2")], "Group '1' is tied twice. Name each group once"),
        ([("0", "0")], "Group '0' is tied twice. Name each group once"),
        ([("0",)], r"tie=\('0',\) does not name several groups. Give the names of two or more"),
        (["01"], "tie='01' does not name several groups. Give the names of two or more"),
    ],
)
def test_ties_that_make_no_sense_are_rejected(ties: list[tuple[str, ...]], words: str) -> None:
    graph = trace_unverified(Chain(), torch.randn(1, 3, 4, 4))[1].graph
    with pytest.raises(aacp.InvalidOption, match=words):
        tied(graph, ties)
