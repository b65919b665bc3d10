"""Verification also tries inputs of another size and batch than the example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.other_shapes import another_size, other_examples
from aacp.graph.tracing import prepare


class PositionAttention(nn.Module):
    """Attention over positions whose result is read as channels x positions, although it is positions x channels.

    With four positions, four neighbouring channels end up in one channel; with nine, they do not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.width = 16
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.second = nn.Conv2d(12, 16, 4, stride=4)
        self.values = nn.Conv2d(16, 16, 1)
        self.last = nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu())
        batch, _, height, width = y.shape
        values = self.values(y).flatten(2).transpose(1, 2)
        likeness = (values @ values.transpose(1, 2)).flatten(1).softmax(1)
        mixed = likeness.view(batch, height * width, -1) @ values
        return self.last(y + mixed.reshape(batch, self.width, height, width))


@pytest.mark.slow
def test_a_cut_that_is_exact_only_at_the_size_of_the_example_is_frozen_with_the_size_at_which_it_is_wrong() -> None:
    graph = aacp.trace(PositionAttention(), torch.randn(1, 3, 8, 8))
    reasons = {group.name: group.frozen for group in graph.groups}
    assert reasons["first"] is None
    assert reasons["second"] is not None
    assert "for inputs of shape 2x3x12x12" in reasons["second"]


class RowMixer(nn.Module):
    """Adds to each row of the batch the next one, moved by a channel, if the batch has several rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.second = nn.Conv2d(8, 12, 3)
        self.last = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu()).mean((2, 3))
        if len(y) > 1:
            y = y + y.roll(1, 1)
        return self.last(y)


def test_a_cut_that_is_exact_only_for_one_image_is_frozen() -> None:
    graph = aacp.trace(RowMixer(), torch.randn(1, 3, 9, 9))
    assert [group.name for group in graph.free] == ["first"]


def test_a_program_without_sizes_is_not_exported_again_for_another_shape() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    verifier = prepare(model, torch.randn(1, 3, 8, 8))
    elsewhere = verifier.elsewhere()
    assert elsewhere is not None
    assert elsewhere.arguments[0].shape == (2, 3, 12, 12)
    assert elsewhere.propagation is verifier.propagation


def test_a_network_for_one_shape_only_is_verified_there() -> None:
    class OneShape(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.conv(x).relu().view(1, -1))

    model = OneShape()
    assert prepare(model, torch.randn(1, 3, 8, 8)).elsewhere() is None
    assert [group.name for group in aacp.trace(model, torch.randn(1, 3, 8, 8)).free] == ["conv"]


@pytest.mark.parametrize(("size", "other"), [(3, 3), (8, 12), (32, 64), (64, 96), (96, 64), (224, 160), (256, 192)])
def test_sizes_stay_multiples_of_the_stride_of_networks(size: int, other: int) -> None:
    assert another_size(size) == other


def test_other_examples_hold_elements_of_the_example_and_keep_what_is_not_a_tensor() -> None:
    x = torch.arange(2.0 * 3 * 8 * 8).view(2, 3, 8, 8)
    found = list(other_examples((x, None, torch.tensor([7, 9]))))
    assert [tuple(images.shape) for images, _, _ in found] == [
        (3, 3, 12, 12),
        (3, 3, 8, 8),
        (3, 3, 16, 16),
        (2, 3, 12, 12),
    ]
    for images, nothing, numbers in found:
        assert nothing is None
        assert torch.isin(images, x).all()
        assert torch.isin(numbers, torch.tensor([7, 9])).all()
