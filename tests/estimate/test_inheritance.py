"""Inheritance keeps the most important channels where they stand."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.estimate.inheritance import Order

EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)]
    network = nn.Sequential(*layers)
    with torch.no_grad():
        for layer, sizes in ((network[0], [3, 9, 1, 7, 5, 8]), (network[3], [2, 2, 2, 2])):
            layer.weight.fill_(1.0)
            layer.weight.mul_(torch.tensor(sizes, dtype=torch.float32).reshape(-1, 1, 1, 1))
        network[1].running_mean.normal_()
        network[1].running_var.uniform_(0.5, 2)
    return network.eval()


@pytest.fixture(scope="module")
def graph(model) -> aacp.ChannelGraph:
    return aacp.trace(model, EXAMPLE)


def test_the_most_important_channels_are_kept_in_the_order_of_the_network(model, graph) -> None:
    smaller = aacp.inherit(model, graph, [3, 4])
    kept = [1, 3, 5]  # of importance 9, 7 and 8: not in the order of importance
    assert torch.equal(smaller[0].weight, model[0].weight[kept])
    assert torch.equal(smaller[0].bias, model[0].bias[kept])
    assert torch.equal(smaller[1].running_mean, model[1].running_mean[kept])
    assert torch.equal(smaller[3].weight, model[3].weight[:, kept])


def test_of_equally_important_channels_the_first_are_kept(model, graph) -> None:
    smaller = aacp.inherit(model, graph, [6, 2])
    assert torch.equal(smaller[3].bias, model[3].bias[:2])
    assert torch.equal(smaller[5].weight, model[5].weight[:, :2])


def test_every_structure_keeps_what_a_smaller_one_keeps(graph) -> None:
    order = Order.of(graph, np.random.default_rng(0).random(len(graph.unit_groups)))
    kept = [set(order.kept([count, 1])["0"].tolist()) for count in range(1, 7)]
    assert [len(channels) for channels in kept] == [1, 2, 3, 4, 5, 6]
    assert all(smaller < larger for smaller, larger in pairwise(kept))


def test_frozen_groups_stay_whole(model) -> None:
    graph = aacp.trace(model, EXAMPLE, frozen="0")
    order = Order.of(graph, np.arange(len(graph.unit_groups), dtype=float))
    assert order.units([1]).sum() == 6 + 1 + 2  # frozen by hand, one of the free group, the network's outputs
    assert aacp.inherit(model, graph, [1])[0].out_channels == 6


def test_the_criterion_and_its_seed_reach_the_choice(model, graph) -> None:
    first = aacp.inherit(model, graph, [1, 4], importance=lambda *_: {"0": [0, 0, 1, 0, 0, 0], "3": [0] * 4})
    assert torch.equal(first[0].weight, model[0].weight[2:3])
    drawn = {aacp.inherit(model, graph, [1, 1], importance="random", seed=seed)[0].bias.item() for seed in range(12)}
    assert len(drawn) > 1


def test_the_model_is_not_touched_and_shares_nothing(model, graph) -> None:
    model = copy.deepcopy(model).train()
    before = copy.deepcopy(model.state_dict())
    smaller = aacp.inherit(model, graph, [6, 2])
    with torch.no_grad():
        for tensor in [*smaller.parameters(), *smaller.buffers()]:
            tensor.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("structure", [[3], [3, 0], [7, 4], [3, 4, 1]])
def test_structures_that_the_graph_does_not_allow_are_refused(model, graph, structure: list[int]) -> None:
    with pytest.raises(aacp.InvalidStructure):
        aacp.inherit(model, graph, structure)


@pytest.mark.parametrize("structure", [[2.7, 4], [True, 4], ["a", 4], [float("nan"), 4]])
def test_counts_that_are_no_whole_numbers_are_refused(model, graph, structure: list[float]) -> None:
    with pytest.raises(aacp.InvalidStructure):
        aacp.inherit(model, graph, structure)
