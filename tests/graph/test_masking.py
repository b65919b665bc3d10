"""Statistics over channels, compared with statistics computed by hand on the kept channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aacp

KEPT = [0, 2, 3, 7, 8, 11]


class GlobalResponse(nn.Module):
    """Every channel's size over all positions, relative to the mean over channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        size = x.norm(dim=(2, 3), keepdim=True)
        return x + x * size / (size.mean(1, keepdim=True) + 1e-6) * self.weight.view(1, -1, 1, 1)


class ChannelsLast(nn.Module):
    """A norm over the last dimension, applied to channels."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def by_hand_global_response(x: Tensor, norm: GlobalResponse) -> Tensor:
    size = (x**2).sum((2, 3), keepdim=True) ** 0.5
    mean = size.sum(1, keepdim=True) / len(KEPT)
    return x + x * size / (mean + 1e-6) * norm.weight[KEPT].view(1, -1, 1, 1)


def by_hand_layer_norm(x: Tensor, module: ChannelsLast) -> Tensor:
    mean = x.sum(1, keepdim=True) / len(KEPT)
    variance = ((x - mean) ** 2).sum(1, keepdim=True) / len(KEPT)
    normal = (x - mean) / (variance + 1e-5) ** 0.5
    return normal * module.norm.weight[KEPT].view(1, -1, 1, 1) + module.norm.bias[KEPT].view(1, -1, 1, 1)


def by_hand_rms_norm(x: Tensor, module: ChannelsLast) -> Tensor:
    square = (x**2).sum(1, keepdim=True) / len(KEPT)
    return x / (square + 1e-6) ** 0.5 * module.norm.weight[KEPT].view(1, -1, 1, 1)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor, nn.Module], Tensor]]] = {
    "global_response": (lambda: GlobalResponse(12), by_hand_global_response),
    "layer_norm": (lambda: ChannelsLast(nn.LayerNorm(12)), by_hand_layer_norm),
    "rms_norm": (lambda: ChannelsLast(nn.RMSNorm(12, eps=1e-6)), by_hand_rms_norm),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_norm_over_channels_sees_the_kept_ones_only(name: str) -> None:
    build, by_hand = CASES[name]
    first, norm, last = nn.Conv2d(3, 12, 3), build(), nn.Conv2d(12, 5, 1)
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    model = nn.Sequential(first, norm, last).double().eval()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    graph = aacp.trace(model, x)
    smaller = aacp.shrink(model, graph, {"0": KEPT})
    expected = F.conv2d(by_hand(first(x)[:, KEPT], norm), last.weight[:, KEPT], last.bias)
    torch.testing.assert_close(smaller(x), expected)


def test_group_norm_loses_the_same_slots_of_every_group() -> None:
    first, norm, last = nn.Conv2d(3, 12, 3), nn.GroupNorm(3, 12), nn.Conv2d(12, 5, 1)
    nn.init.uniform_(norm.weight)
    model = nn.Sequential(first, norm, last).double().eval()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    graph = aacp.trace(model, x)
    (group,) = graph.free
    assert (group.width, group.unit_channels) == (4, 3)
    smaller = aacp.shrink(model, graph, {"0": [1, 3]})
    kept = [1, 3, 5, 7, 9, 11]
    hidden = F.group_norm(first(x)[:, kept], 3, norm.weight[kept], norm.bias[kept])
    torch.testing.assert_close(smaller(x), F.conv2d(hidden, last.weight[:, kept], last.bias))


def test_a_standardised_weight_sees_the_kept_inputs_only() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            mean = self.weight.mean((1, 2, 3), keepdim=True)
            spread = self.weight.std((1, 2, 3), keepdim=True, unbiased=False)
            return F.conv2d(x, (self.weight - mean) / (spread + 1e-5), self.bias)

    first, last = nn.Conv2d(3, 12, 3), Standardised(12, 5, 3)
    model = nn.Sequential(first, last).double().eval()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    graph = aacp.trace(model, x)
    smaller = aacp.shrink(model, graph, {"0": KEPT})
    weight = last.weight[:, KEPT].detach().numpy()
    mean = weight.mean((1, 2, 3), keepdims=True)
    weight = (weight - mean) / (weight.std((1, 2, 3), keepdims=True) + 1e-5)
    expected = F.conv2d(first(x)[:, KEPT], torch.from_numpy(np.ascontiguousarray(weight)), last.bias)
    torch.testing.assert_close(smaller(x), expected)
