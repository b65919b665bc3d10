"""The exported form of networks whose code does not run with other widths."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.data.examples import call
from graph.micro_networks import MICRO
from graph.oracles import half, in_double, tensors, zero_masked

BY_NAME = {micro.name: micro for micro in MICRO}


class Literal(nn.Module):
    """Sizes written out in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3)
        self.a, self.b = nn.Conv2d(8, 6, 1), nn.Conv2d(4, 6, 1)
        self.out = nn.Linear(6 * 4 * 4, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        first, second = torch.split(self.conv(x), [8, 4], dim=1)
        return {"y": self.out((self.a(first) + self.b(second)).reshape(-1, 6 * 16))}


@pytest.mark.slow
def test_literal_sizes_freeze_a_module_but_not_an_exported_graph() -> None:
    model, x = Literal(), torch.randn(2, 3, 6, 6)
    with pytest.raises(aacp.NothingToPrune, match="written out in the code"):
        aacp.trace(model, x)
    graph = aacp.trace(model, x, form="exported")
    assert [(g.name, g.width) for g in graph.free] == [("conv[0:8]", 8), ("conv[8:12]", 4), ("a", 6)]
    kept = {"conv[0:8]": [1, 2, 6], "conv[8:12]": [3], "a": [0, 5]}
    smaller = aacp.shrink(model, graph, kept, example=x)
    expected = zero_masked(model, graph, graph.kept_units(kept))(x)["y"]
    torch.testing.assert_close(smaller(x)["y"], expected)
    assert sum(p.numel() for p in smaller.parameters()) == aacp.params(graph)([3, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shufflenet_v1", "res2net", "padded_shortcut", "attention_by_hand", "nested_input"])
def test_the_exported_form_equals_the_zero_masked_original(name: str) -> None:
    model, example = BY_NAME[name].build().double(), in_double(BY_NAME[name].example())
    graph = aacp.trace(model, example, form="exported")
    kept = half(graph, seed=2)
    smaller = aacp.shrink(model, graph, kept, example=example)
    expected = tensors(zero_masked(model, graph, graph.kept_units(kept)).eval()(*example))
    for one, other in zip(expected, tensors(smaller(*example)), strict=True):
        torch.testing.assert_close(one, other)


class Gated(nn.Module):
    """Two inputs, of which the second may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor, gate: Tensor | None = None) -> Tensor:
        x = self.stem(image)
        return self.head(x if gate is None else x * gate)


def test_the_exported_network_takes_inputs_by_name_in_any_order() -> None:
    model, image, gate = Gated(), torch.randn(2, 3, 6, 6), torch.rand(2, 1, 4, 4)
    graph = aacp.trace(model, (image, gate), form="exported")
    network = copy.deepcopy(aacp.shrink(model, graph, [4], example=(image, gate)))
    expected = network(image, gate)
    for inputs in ({"image": image, "gate": gate}, {"gate": gate, "image": image}):
        assert torch.equal(call(network, inputs), expected)
    assert torch.equal(network(image, gate=gate), expected)
    for wrong in ({"mask": gate}, {"image": image}):
        with pytest.raises(TypeError, match="unexpected arguments"):
            network(image, **wrong)


def test_the_exported_network_trains_and_copies() -> None:
    model, x = Literal(), torch.randn(2, 3, 6, 6)
    graph = aacp.trace(model, x, form="exported")
    smaller = copy.deepcopy(aacp.shrink(model, graph, [4, 2, 3], example=x))
    smaller(x)["y"].sum().backward()
    assert all(p.grad is not None and np.isfinite(p.grad.abs().sum().item()) for p in smaller.parameters())


def test_the_exported_form_asks_for_the_example() -> None:
    model, x = Literal(), torch.randn(2, 3, 6, 6)
    graph = aacp.trace(model, x, form="exported")
    with pytest.raises(aacp.InvalidOption, match="Pass the example that"):
        aacp.shrink(model, graph, [4, 2, 3])
