"""Masked weights are zero exactly where a removed channel takes part, one structure after another."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import aacp
from aacp.accelerate.masked.weights import MaskedWeights
from aacp.estimate.importance import unit_importance
from aacp.estimate.inheritance import ChannelOrder
from graph.micro_networks import MICRO
from graph.oracles import zero_masked

pytestmark = pytest.mark.slow

BY_NAME = {micro.name: micro for micro in MICRO}


@pytest.mark.parametrize(
    "name", ["grouped_conv_transpose", "depthwise_separable", "inception_concat", "pool_to_2x2_then_flatten", "conv3d"]
)
def test_masked_weights_are_those_of_the_zero_masked_network(name: str) -> None:
    model = BY_NAME[name].build()
    before = copy.deepcopy(model.state_dict())
    graph = aacp.trace(model, BY_NAME[name].example())
    order = ChannelOrder.of(graph, unit_importance(model, graph))
    weights = MaskedWeights(model, graph)
    layers = {f"{layer.name}.weight" for layer in graph.layers}
    assert set(weights.tensors) == layers & set(before)
    half = [max(1, group.width // 2) for group in graph.free]
    for structure in (half, graph.full, [1] * len(half)):  # what was masked comes back
        weights.keep(order.units(structure))
        expected = zero_masked(model, graph, order.units(structure)).state_dict()
        for tensor, weight in weights.tensors.items():
            assert torch.equal(weight, expected[tensor])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_they_are_where_the_parameters_are_and_not_where_the_network_keeps_other_tensors() -> None:
    micro = BY_NAME["depthwise_separable"]
    model = micro.build()
    model.factor = torch.tensor(2.0)  # stays on the CPU when the network is moved
    graph = aacp.trace(model, micro.example())
    weights = MaskedWeights(model.to("meta"), graph)
    weights.keep(np.ones(len(graph.unit_groups), dtype=bool))
    assert {tensor.device.type for tensor in (weights.present, *weights.tensors.values())} == {"meta"}
