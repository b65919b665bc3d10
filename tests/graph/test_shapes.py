"""The structure of a cut network is derived from its shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.graph.shapes import require_fit, structure_of
from graph.micro_networks import MICRO

BY_NAME = {micro.name: micro for micro in MICRO}
NAMES = ["uneven_split", "dense_block", "padded_shortcut", "grouped_conv", "inception_concat", "attention_by_hand"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_counts_that_a_network_was_cut_to_are_read_off_its_shapes(name: str) -> None:
    model, example = BY_NAME[name].build(), BY_NAME[name].example()
    graph = aacp.trace(model, example)
    generator = np.random.default_rng(0)
    for _ in range(3):
        counts = [int(generator.integers(1, group.width + 1)) for group in graph.free]
        assert list(structure_of(aacp.shrink(model, graph, counts), graph)) == counts


@pytest.mark.slow
def test_padding_that_no_weight_shows_is_read_off_the_numbers_in_the_shortcuts() -> None:
    model = aacp.build_model("digits_resnet")
    graph = aacp.trace(model, torch.randn(1, 1, 8, 8))
    counts = [5, 6, 7, 1, 8, 9, 3, 16]
    smaller = aacp.shrink(model, graph, counts)
    assert list(structure_of(smaller, graph)) == counts
    smaller.get_submodule("layer3.0.shortcut").before, expected = 4, r"layer3.0.shortcut.before is 4 .* makes it 3"
    with pytest.raises(aacp.GraphMismatch, match=expected):
        require_fit(smaller, graph, aacp.Structure(counts))


@pytest.mark.slow
def test_an_uncut_network_keeps_everything() -> None:
    model = BY_NAME["resnet_basic"].build()
    graph = aacp.trace(model, BY_NAME["resnet_basic"].example())
    assert structure_of(model, graph) == graph.full


@pytest.mark.slow
def test_a_network_of_another_graph_is_rejected_with_the_tensor_and_both_shapes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 2, 1))
    graph = aacp.trace(model, torch.randn(1, 3, 4, 4))
    broken = aacp.shrink(model, graph, [4, 3])
    broken[1].weight = nn.Parameter(torch.zeros(3, 5, 1, 1))
    with pytest.raises(aacp.GraphMismatch, match=r"has shape \(.*\) in this network, but the graph, .* gives it"):
        structure_of(broken, graph)
    with pytest.raises(aacp.GraphMismatch, match=r"0.bias has shape \(4,\).* \[5, 3\], gives it \(5,\)"):
        require_fit(aacp.shrink(model, graph, [4, 3]), graph, aacp.Structure([5, 3]))
    with pytest.raises(aacp.GraphMismatch, match=r"has no 0.bias, but its graph does"):
        structure_of(nn.ModuleDict({"inner": model}), graph)
    with pytest.raises(aacp.GraphMismatch, match=r"has 3.bias, but its graph does not"):
        structure_of(nn.Sequential(*model, nn.Conv2d(2, 2, 1)), graph)


def test_shapes_that_leave_a_choice_are_not_guessed_at() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1))
    graph = aacp.trace(model, torch.randn(1, 3, 4, 4))
    unseen = aacp.ChannelGraph.from_json({**graph.to_json(), "tensors": []})  # no tensor shows what the group keeps
    with pytest.raises(aacp.GraphMismatch, match=r"do not say how many channels.*kept="):
        structure_of(nn.Identity(), unseen)
