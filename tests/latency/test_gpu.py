"""Latency on a GPU, where the time of a piece lies between two events."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aacp

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

ON_GPU = aacp.Deployment("torch", "cuda", batch=64)


def test_a_network_is_measured_on_the_gpu_and_left_on_the_cpu() -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
    example = torch.randn(1, 3, 32, 32)
    graph = aacp.trace(model, example)
    table = aacp.measure_latency(
        model,
        graph,
        aacp.SearchSpace(graph, 1 / 4),
        ON_GPU,
        example=example,
        structures=6,
        held_out=3,
        seconds_per_structure=0.1,
    )
    assert table.conditions.device == torch.cuda.get_device_name()
    assert all(second > 0 for run in table.measured for second in run.pieces)
    assert next(model.parameters()).device.type == "cpu"
    (checked,) = aacp.check_latency(model, graph, [graph.full], ON_GPU, example=example, turns=5)
    assert 0.5 < checked.ratio.median < 2


def test_steps_are_found_on_the_gpu() -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))
    example = torch.randn(1, 3, 32, 32)
    graph = aacp.trace(model, example)
    steps = aacp.discover_steps(model, graph, ON_GPU, example=example, seconds_per_structure=0.1)
    assert set(steps) == {group.name for group in graph.free}
    aacp.SearchSpace(graph, steps)
