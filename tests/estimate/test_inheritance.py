"""Inheritance keeps the most important units, in their original order."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.data.batches import Batches
from aacp.estimate.inheritance import ChannelOrder, Inheritance

IMAGES = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))
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
    smaller = Inheritance(model, graph, IMAGES).network([3, 4])
    kept = [1, 3, 5]  # of importance 9, 7 and 8: not in the order of importance
    assert torch.equal(smaller[0].weight, model[0].weight[kept])
    assert torch.equal(smaller[0].bias, model[0].bias[kept])
    assert torch.equal(smaller[1].weight, model[1].weight[kept])
    assert torch.equal(smaller[3].weight, model[3].weight[:, kept])


def test_of_equally_important_channels_the_first_are_kept(model, graph) -> None:
    smaller = Inheritance(model, graph, IMAGES).network([6, 2])
    assert torch.equal(smaller[3].bias, model[3].bias[:2])
    assert torch.equal(smaller[5].weight, model[5].weight[:, :2])


def test_every_structure_keeps_what_a_smaller_one_keeps(graph) -> None:
    order = ChannelOrder.of(graph, np.random.default_rng(0).random(len(graph.unit_groups)))
    kept = [set(order.kept([count, 1])["0"].tolist()) for count in range(1, 7)]
    assert [len(channels) for channels in kept] == [1, 2, 3, 4, 5, 6]
    assert all(smaller < larger for smaller, larger in pairwise(kept))


def test_frozen_groups_stay_whole(model) -> None:
    graph = aacp.trace(model, EXAMPLE, frozen="0")
    order = ChannelOrder.of(graph, np.arange(len(graph.unit_groups), dtype=float))
    assert order.units([1]).sum() == 6 + 1 + 2  # frozen by hand, one of the free group, the network's outputs
    assert Inheritance(model, graph, IMAGES).network([1])[0].out_channels == 6


def test_the_criterion_and_its_seed_reach_the_choice(model, graph) -> None:
    scores = {"0": [0, 0, 1, 0, 0, 0], "3": [0] * 4}
    first = Inheritance(model, graph, IMAGES, importance=lambda *_: scores).network([1, 4])
    assert torch.equal(first[0].weight, model[0].weight[2:3])
    drawn = [Inheritance(model, graph, IMAGES, importance="random", seed=seed).kept([1, 1]) for seed in range(12)]
    assert len({int(kept["0"][0]) for kept in drawn}) > 1


def test_a_function_of_three_arguments_is_given_the_calibration_images(model, graph) -> None:
    def mean_activation(network: nn.Module, graph: aacp.ChannelGraph, calibration: Batches) -> dict[str, torch.Tensor]:
        (images,) = calibration.inputs()
        assert torch.equal(images, IMAGES)
        first = network[0](images)
        first.sum().backward()  # on a copy: the model has no gradients afterwards
        return {"0": first.mean((0, 2, 3)), "3": torch.zeros(4)}

    inheritance = Inheritance(model, graph, IMAGES, importance=mean_activation)
    expected = model[0](IMAGES).mean((0, 2, 3)).argsort(descending=True)[:2]
    assert inheritance.kept([2, 4])["0"].tolist() == sorted(expected.tolist())
    assert all(parameter.grad is None for parameter in [*model.parameters(), *inheritance.model.parameters()])


def test_the_importance_is_computed_once(model, graph) -> None:
    calls = []

    def counted(*_: object) -> dict[str, list[int]]:
        calls.append(1)
        return {"0": [0] * 6, "3": [0] * 4}

    inheritance = Inheritance(model, graph, IMAGES, importance=counted)
    for structure in ([3, 4], [2, 2]):
        inheritance.network(structure)
        inheritance.kept(structure)
    assert len(calls) == 1


# -- what becomes of the weights --------------------------------------------------------------------------------------


def test_the_network_is_cut_and_recalibrated_and_in_evaluation_mode(model, graph) -> None:
    found = Inheritance(copy.deepcopy(model).train(), graph, IMAGES).network([3, 4])
    expected = aacp.shrink(model, graph, {"0": [1, 3, 5]}).eval()
    aacp.recalibrate(expected, IMAGES)
    assert not any(module.training for module in found.modules())
    assert found.state_dict().keys() == expected.state_dict().keys()
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())


def test_a_reconstruction_sees_what_was_cut_and_is_recalibrated_afterwards(model, graph) -> None:
    seen: list[tuple[object, ...]] = []

    def doubled(network: nn.Module, *others: object) -> None:
        seen.append(others)
        with torch.no_grad():
            network[0].weight.mul_(2)
            network[0].bias.mul_(2)

    inheritance = Inheritance(model, graph, IMAGES, reconstruction=doubled)
    found, plain = inheritance.network([3, 4]), Inheritance(model, graph, IMAGES).network([3, 4])
    assert torch.equal(found[0].weight, 2 * plain[0].weight)
    torch.testing.assert_close(found[1].running_mean, 2 * plain[1].running_mean)
    ((original, given, kept, calibration),) = seen
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in original.state_dict().items())
    assert (given, kept["0"].tolist(), calibration.images) == (graph, [1, 3, 5], 5)


def test_a_reconstruction_that_fails_is_a_clear_error(model, graph) -> None:
    place = r"\(in <lambda>, test_inheritance.py, line \d+\)"
    with pytest.raises(aacp.InvalidOption, match=f"reconstruction function failed: ZeroDivisionError.*{place}"):
        Inheritance(model, graph, IMAGES, reconstruction=lambda *_: 1 / 0).network([3, 4])


def test_the_model_is_not_touched_and_shares_nothing(model, graph) -> None:
    model = copy.deepcopy(model).train()
    before = copy.deepcopy(model.state_dict())
    smaller = Inheritance(model, graph, IMAGES).network([6, 2])
    with torch.no_grad():
        for tensor in [*smaller.parameters(), *smaller.buffers()]:
            tensor.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("structure", [[3], [3, 0], [7, 4], [3, 4, 1]])
def test_structures_that_the_graph_does_not_allow_are_rejected(model, graph, structure: list[int]) -> None:
    with pytest.raises(aacp.InvalidStructure):
        Inheritance(model, graph, IMAGES).network(structure)


@pytest.mark.parametrize("structure", [[2.7, 4], [True, 4], ["a", 4], [float("nan"), 4]])
def test_counts_that_are_no_whole_numbers_are_rejected(model, graph, structure: list[float]) -> None:
    with pytest.raises(aacp.InvalidStructure):
        Inheritance(model, graph, IMAGES).network(structure)
