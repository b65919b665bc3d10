import itertools

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.graph.unverified import trace_unverified
from aacp.pipeline.delivery import file_bytes
from aacp.zoo.models import build_model
from graph.oracles import counted_macs, half
from sampling import sampled


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sampled(["timm:test_resnet", "timm:regnetx_002"], 2), "timm:test_efficientnet"])
def test_costs_equal_those_of_the_network_that_is_built(name: str) -> None:
    model, x = build_model(name).eval(), torch.randn(2, 3, 32, 32)
    graph = aacp.trace(model, x)
    kept = half(graph, seed=3)
    smaller = aacp.shrink(model, graph, kept)
    counts = [len(kept[group.name]) for group in graph.free]
    again = trace_unverified(smaller, x)[1].graph  # to be counted, not cut
    assert aacp.macs(graph)(counts) == counted_macs(smaller, (x,))
    assert aacp.params(graph)(counts) == sum(p.numel() for p in smaller.parameters())
    assert aacp.activation_bytes(graph)(counts) == aacp.activation_bytes(again).full


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_take_the_bytes_of_their_precision(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 3)).to(dtype)
    graph = aacp.trace(net, torch.randn(1, 3, 8, 8, dtype=dtype))
    smaller = aacp.shrink(net, graph, [6])
    for cost, network in ((aacp.weight_bytes(graph).full, net), (aacp.weight_bytes(graph)([6]), smaller)):
        assert cost == sum(value.numel() * value.element_size() for value in network.state_dict().values())


class Keeping(nn.Module):
    """Keeps the features of its last run, as networks do whose features are looked at later."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 3)
        self.factor = torch.tensor(2.0)  # neither parameter nor buffer, but the network needs it
        self.features = torch.zeros(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.features = self.a(x)
        return self.b(self.features * self.factor)


def test_features_that_a_network_keeps_of_its_last_run_are_no_weights() -> None:
    net = Keeping()
    weights = 4 + sum(value.numel() * value.element_size() for value in net.state_dict().values())
    for images in (1, 50):
        net(torch.randn(images, 3, 8, 8))
        graph = aacp.trace(net, torch.randn(1, 3, 8, 8))
        assert aacp.weight_bytes(graph).full == weights
        assert aacp.shrink(net, graph, [3])(torch.randn(2, 3, 8, 8)).shape == (2, 5, 4, 4)
        assert file_bytes(net, graph) < weights + 1000


@pytest.mark.slow
def test_many_structures_cost_what_each_costs_alone() -> None:
    graph = trace_unverified(build_model("timm:test_efficientnet").eval(), torch.randn(1, 3, 32, 32))[1].graph
    space, generator = aacp.SearchSpace(graph), np.random.default_rng(0)
    structures = [space.sample(generator) for _ in range(30)]
    for cost in (aacp.macs(graph), aacp.params(graph), aacp.activation_bytes(graph)):
        together = cost(np.array([list(s) for s in structures]))
        assert together.tolist() == [cost(structure) for structure in structures]
        assert (cost.name, cost.unit) in {("macs", "MACs"), ("params", "parameters"), ("activation_bytes", "bytes")}
        assert cost.full == cost(graph.full)


def test_peak_activations_of_a_chain_are_the_largest_pair_of_neighbours() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 20, 3), nn.Flatten(), nn.Linear(20 * 16, 5))
    graph = aacp.trace(net, torch.randn(2, 3, 8, 8))
    sizes = [2 * 3 * 64, 2 * 8 * 36, 2 * 8 * 36, 2 * 20 * 16, 2 * 5]  # flatten takes no memory of its own
    assert aacp.activation_bytes(graph).full == 4 * max(a + b for a, b in itertools.pairwise(sizes))
    cut = [2 * 3 * 64, 2 * 2 * 36, 2 * 2 * 36, 2 * 7 * 16, 2 * 5]
    assert aacp.activation_bytes(graph)([2, 7]) == 4 * max(a + b for a, b in itertools.pairwise(cut))


def test_an_activation_that_is_added_later_stays_alive() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x)
            return self.c(y + self.b(y).sigmoid())

    graph = aacp.trace(Residual(), torch.randn(1, 3, 10, 10))
    assert aacp.activation_bytes(graph).full == 4 * 100 * (8 + 8 + 8)  # y, b's output, its sigmoid


class Filters(nn.Module):
    """Convolutions of several kinds: plain, grouped, depthwise, shared by two calls, transposed, and the output."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 24, 1, groups=4)
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.shared = nn.Conv2d(24, 24, 1)
        self.up = nn.ConvTranspose2d(24, 10, 2, 2)
        self.out = nn.Conv2d(10, 5, 1)
        self.head = nn.Linear(5, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.grouped(self.stem(x)).relu())
        x = self.shared(self.shared(x).relu())
        return self.head(self.out(self.up(x).relu()).mean((2, 3)))


@pytest.mark.parametrize("frozen", [(), ("grouped",)])
def test_channels_are_the_filters_of_all_convolutions_after_the_cut(frozen: tuple[str, ...]) -> None:
    net = Filters().eval()
    graph = aacp.trace(net, torch.randn(1, 3, 8, 8), frozen=frozen)
    cost = aacp.channel_count(graph)
    space, generator = aacp.SearchSpace(graph, 1 / 4), np.random.default_rng(0)
    structures = [space.full, space.smallest, *(space.sample(generator) for _ in range(3))]
    for structure in structures:
        smaller = aacp.shrink(net, graph, structure)
        convolutions = [layer for layer in smaller.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]
        assert cost(structure) == sum(layer.out_channels for layer in convolutions)
    assert cost.full == 16 + 24 + 24 + 24 + 10 + 5
    assert cost(np.array([list(s) for s in structures])).tolist() == [cost(structure) for structure in structures]
