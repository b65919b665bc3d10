"""Structures are measured as they would be delivered, in turns with the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.timing import Quartiles


def wide() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1))


@pytest.mark.timing
@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_a_much_smaller_structure_is_faster_and_the_ratio_says_so(runtime: str) -> None:
    if runtime == "onnxruntime":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)
    model, example = wide(), torch.randn(1, 3, 16, 16)
    graph = aacp.trace(model, example)
    small, whole = aacp.Structure([8]), graph.full
    assert len(graph.free) == 1
    found = aacp.check_latency(
        model, graph, [small, whole], aacp.Deployment(runtime, threads=1), example=example, turns=9
    )
    assert [checked.structure for checked in found] == [small, whole]
    assert found[0].ratio.median < 0.7
    assert found[0].seconds.median > 0
    assert "of the original" in str(found[0])


def test_faster_means_in_most_turns() -> None:
    seconds = Quartiles(1.0, 1.0, 1.0)
    assert aacp.LatencyCheck(aacp.Structure([1]), seconds, Quartiles(0.8, 0.9, 0.99)).is_faster
    assert not aacp.LatencyCheck(aacp.Structure([1]), seconds, Quartiles(0.8, 0.9, 1.01)).is_faster
