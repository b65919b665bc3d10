"""Comparison: differences at the scale of the outputs, where many elements may be equal."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aacp import trace
from aacp.graph.comparison import compare

ONE = 1 + torch.finfo(torch.float32).eps


def test_a_rounding_error_in_one_element_is_judged_by_how_much_all_elements_vary() -> None:
    expected = torch.tensor([0.5, -0.25, 0.125, 1.0])
    for place in range(4):
        found = expected.clone()
        found[place] *= ONE
        assert 0 < compare([expected], [found]) < 1e-6  # type: ignore[operator]


def test_equal_fill_values_do_not_hide_a_difference() -> None:
    expected = torch.tensor([0.5, 0.75, *[-1e9, 1e9, -torch.inf] * 9])
    found = expected.clone()
    found[0] += 0.01
    assert compare([expected], [found]) > 0.01  # type: ignore[operator]
    assert compare([torch.tensor([torch.inf])], [torch.tensor([1.0])]) == torch.inf


class Converting(nn.Sequential):
    """A network that reads bytes, and does not run in double precision."""

    def forward(self, pixels: Tensor) -> Tensor:
        return super().forward(pixels.float() / 255)  # type: ignore[no-any-return]


def test_rounding_errors_freeze_no_layer_of_a_network_that_needs_single_precision() -> None:
    torch.manual_seed(3)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    network = Converting(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), pooled)
    graph = trace(network, torch.randint(256, (1, 3, 8, 8), dtype=torch.uint8))
    assert len(graph.free) == 2
