"""Sliced and masked execution give what `shrink` and `recalibrate` give, on every construct a network is made of."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.data.batches import Batches, call
from aacp.estimate.importance import unit_importance
from aacp.estimate.inheritance import Order
from aacp.estimate.masked import Masked
from aacp.estimate.sliced import Sliced
from graph.micro_networks import MICRO, Micro
from graph.oracles import tensors


def structures(graph: aacp.ChannelGraph, count: int) -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [[int(generator.integers(1, group.width + 1)) for group in graph.free] for _ in range(count)]


def compare(model: nn.Module, example: tuple[Any, ...], count: int = 2) -> None:
    graph = aacp.trace(model, example)
    calibration = Batches.of([(example, torch.zeros(len(tensors(example)[0])))], batch_size=1024)
    order = Order.of(graph, unit_importance(model, graph))
    executions = [Sliced(model, order, calibration), Masked(model, order, calibration)]
    for structure in structures(graph, count):
        expected = aacp.inherit(model, graph, structure).eval()
        aacp.recalibrate(expected, calibration)
        inputs = next(calibration.inputs())
        with torch.no_grad():
            wanted = tensors(call(expected, copy.deepcopy(inputs)))
            for execution in executions:
                found = tensors(call(execution.network(structure), copy.deepcopy(inputs)))
                for one, other in zip(wanted, found, strict=True):
                    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("micro", MICRO, ids=lambda micro: micro.name)
def test_micro_networks_run_sliced_and_masked_as_they_do_shrunk(micro: Micro) -> None:
    compare(micro.build().eval(), micro.example())
