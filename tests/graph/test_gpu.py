"""Tracing and cutting on a GPU: tensors stay on the device, and cuts equal the zero-masked original."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import aacp
from graph.micro_networks import MICRO
from graph.oracles import half, tensors, zero_masked
from graph.test_parts import IMAGES, Detector

BY_NAME = {micro.name: micro for micro in MICRO}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine"),
]


@pytest.mark.parametrize(
    "name", ["resnet_basic", "padded_shortcut", "shufflenet_v1", "attention_by_hand", "inverted_residual", "unet"]
)
def test_a_network_on_the_gpu_is_traced_and_cut_there(name: str) -> None:
    model = BY_NAME[name].build().cuda().double().eval()
    example = pytree.tree_map(lambda t: t.cuda().double(), BY_NAME[name].example())
    graph = aacp.trace(model, example)
    assert graph == aacp.trace(model.cpu(), pytree.tree_map(lambda t: t.cpu(), example))
    model.cuda()
    kept = half(graph, seed=1)
    smaller = aacp.shrink(model, graph, kept)
    assert {p.device.type for p in smaller.parameters()} == {"cuda"}
    expected = tensors(zero_masked(model.cpu(), graph, graph.kept_units(kept)).cuda()(*example))
    for one, other in zip(expected, tensors(smaller(*example)), strict=True):
        torch.testing.assert_close(one, other)


def test_an_example_on_the_cpu_is_moved_to_the_network() -> None:
    micro = BY_NAME["resnet_basic"]
    model = micro.build().eval()
    expected = aacp.trace(model, micro.example())
    assert aacp.trace(model.cuda(), micro.example()) == expected
    graph = aacp.trace(model, micro.example(), form="exported")
    smaller = aacp.shrink(model, graph, half(graph, seed=1), example=micro.example())
    assert {p.device.type for p in smaller.parameters()} == {"cuda"}
    detector = Detector().eval()
    expected = aacp.trace(detector, IMAGES)
    assert aacp.trace(detector.cuda(), IMAGES) == expected
