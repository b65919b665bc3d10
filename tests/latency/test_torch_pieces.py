"""Pieces begin where layers do, and add up to the run."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import aacp
from aacp.latency.torch_pieces import TorchPieces, between, is_convolution, is_layer, piece_kinds


class Slow(nn.Module):
    """A layer after which nothing happens for a while."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x


def test_what_comes_before_the_first_layer_belongs_to_it() -> None:
    assert between([0, 1, 3, 6]) == [3, 3]
    assert between([0, 1, 3, 6, 10]) == [3, 3, 4]
    assert between([0, 4]) == [4]


@pytest.mark.timing
def test_a_piece_is_a_layer_and_what_follows_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), Slow(), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), Slow())
    pieces = TorchPieces(model, torch.randn(1, 3, 4, 4), is_layer, "cpu")
    for _ in range(3):
        pieces.note()
    notes = pieces.notes()
    assert len(notes) == 3
    for first, second, third in notes:
        assert first > 0.02
        assert third > 0.02
        assert second < min(first, third)
    pieces.whole()


def test_equal_pieces_are_called_the_same_whatever_their_widths() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 5, 3)
    )
    example = torch.randn(1, 3, 8, 8)
    layers, kinds, only_convolutions = piece_kinds(model, example, aacp.trace(model, example))
    assert [layer.name for layer in layers] == ["0", "2", "4"]
    assert kinds[0] == kinds[1] != kinds[2]
    assert not only_convolutions


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.middle = nn.Conv2d(8, 8, 3, groups=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(self.middle(self.first(x)), self.last.weight, self.last.bias)


def test_functions_count_as_layers_do_and_depthwise_ones_are_told_apart() -> None:
    model, example = Grouped(), torch.randn(1, 3, 8, 8)
    layers, kinds, _ = piece_kinds(model, example, aacp.trace(model, example))
    assert len(layers) == 3
    assert "depthwise" in kinds[1]
    assert "depthwise" not in kinds[0] + kinds[2]


def test_a_graph_of_another_network_is_refused() -> None:
    model, example = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)), torch.randn(1, 3, 8, 8)
    other = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 1))
    with pytest.raises(aacp.UntraceableModel, match="calls 3 convolutions, but its graph has 2"):
        piece_kinds(other, example, aacp.trace(model, example))
    assert is_convolution("conv_transpose2d")
