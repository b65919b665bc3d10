"""Repair on a GPU gives the network that it gives on a CPU, up to rounding."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import aacp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine"),
]


def test_a_network_is_repaired_on_the_gpu_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    model = aacp.build_model("resnet20").eval()
    images = torch.randn(64, 3, 32, 32)
    aacp.recalibrate(model, images)
    graph = aacp.trace(model, images[:2])
    kept = {group.name: np.arange(group.width * 3 // 4) for group in graph.free}
    here = aacp.shrink(model, graph, kept)
    there = copy.deepcopy(here).cuda()
    inherited = copy.deepcopy(here)
    aacp.repair(here, model, graph, kept, images)
    aacp.repair(there, copy.deepcopy(model).cuda(), graph, kept, images.cuda())
    with torch.no_grad():
        expected = model(images)
        difference = (there.cpu()(images) - here(images)).square().mean()
        assert difference < 1e-3 * (here(images) - expected).square().mean()
        assert (here(images) - expected).square().mean() < (inherited(images) - expected).square().mean()
