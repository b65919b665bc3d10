"""A network is divided into pieces at its layers, and pieces that differ in widths alone have one description."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import aacp
from aacp.latency.layers import describe_pieces, is_convolution, timed_layers


def test_equal_pieces_have_the_same_description_whatever_their_widths() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 5, 3)
    )
    example = torch.randn(1, 3, 8, 8)
    layers, descriptions = describe_pieces(model, example, aacp.trace(model, example))
    assert [layer.name for layer in layers] == ["0", "2", "4"]
    assert descriptions[0] == descriptions[1] != descriptions[2]


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.middle = nn.Conv2d(8, 8, 3, groups=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(self.middle(self.first(x)), self.last.weight, self.last.bias)


def test_functions_count_as_layers_and_depthwise_convolutions_are_distinguished() -> None:
    model, example = Grouped(), torch.randn(1, 3, 8, 8)
    layers, descriptions = describe_pieces(model, example, aacp.trace(model, example))
    assert len(layers) == 3
    assert "depthwise" in descriptions[1]
    assert "depthwise" not in descriptions[0] + descriptions[2]


class Scaled(nn.Module):
    """Calls a product between its convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.register_buffer("factor", torch.ones(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.conv(x) * (self.factor @ self.factor))


def test_a_product_that_the_graph_does_not_list_begins_no_piece() -> None:
    model, example = Scaled(), torch.randn(1, 3, 8, 8)
    graph = aacp.trace(model, example)
    assert len(describe_pieces(model, example, graph)[0]) == 3
    convolutions = tuple(layer for layer in graph.layers if layer.is_convolution)
    layers, _ = describe_pieces(model, example, replace(graph, layers=convolutions))
    assert [layer.name for layer in layers] == ["conv", "last"]


def test_a_graph_of_another_network_is_rejected() -> None:
    model, example = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)), torch.randn(1, 3, 8, 8)
    other = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 1))
    with pytest.raises(aacp.UntraceableModel, match="calls 3 convolutions, but its graph has 2"):
        describe_pieces(other, example, aacp.trace(model, example))
    assert is_convolution("conv_transpose2d")


def test_a_runtime_gets_the_channels_and_macs_of_the_structure() -> None:
    model, example = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)), torch.randn(1, 3, 6, 6)
    graph = aacp.trace(model, example)
    first, second = timed_layers(graph, graph.layers, aacp.Structure([5]))
    assert (first.output_channels, second.output_channels) == (5, 4)
    assert (first.output_size, first.is_convolution) == ((4, 4), True)
    assert first.macs == 3 * 5 * 9 * 16
    assert second.macs == 5 * 4 * 16
