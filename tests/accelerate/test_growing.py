"""Grown networks compute and learn the same as the network they were grown from, and their new channels stay zero."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from aacp.accelerate.equivalence import difference
from aacp.accelerate.growing import Growth, grow, rounded_widths
from aacp.channels.graph import ChannelGraph
from aacp.errors import GraphMismatch, InvalidStructure
from aacp.graph.unverified import trace_unverified
from graph.micro_networks import MICRO, conv, unit
from graph.oracles import in_double, tensors
from sampling import sampled

pytestmark = pytest.mark.slow

# Of the 149 micro networks 127 can be grown (all were tried by hand; these hold every way in which lanes are laid out).
GROWABLE = """flatten_by_attribute grouped_conv_transpose padded_shortcut stochastic_depth inception_concat
    chunk_gate shufflenet_v1 squeeze_excite_linear batch_norm_without_affine tied_convolutions""".split()
NOTICED = {
    "convnext_block": "outputs differ",
    "group_norm": "outputs differ",
    "weight_norm": "outputs differ",
    "broadcast_residual": "a gradient reaches the new channels of head.weight",
    "unused_in_eval": "conv2d",
}
BUILT = {micro.name: micro for micro in MICRO}


def traced(model: nn.Module, example: Any) -> ChannelGraph:
    return trace_unverified(model, example)[1].graph


def micro_and_growth(name: str, multiple: int = 7) -> tuple[nn.Module, tuple[Any, ...], Growth]:
    model, example = BUILT[name].build().double(), in_double(BUILT[name].example())
    graph = traced(model, example)
    return model, example, Growth(model, graph, rounded_widths(graph, multiple))


def learnt(model: nn.Module, example: Any, training: bool) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """What a network returns, and the gradients of the sum of its squares."""
    model.train(training)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    torch.manual_seed(3)
    found = tensors(model(*copy.deepcopy(example)))
    gradients = torch.autograd.grad(
        sum(value.square().sum() for value in found), list(model.parameters()), materialize_grads=True
    )
    return found, dict(zip(dict(model.named_parameters()), gradients, strict=True))


@pytest.mark.parametrize("name", sampled(GROWABLE, 2))
def test_a_grown_network_computes_and_learns_the_same(name: str) -> None:
    model, example, growth = micro_and_growth(name)
    for parameter in model.parameters():
        parameter.requires_grad_()
    wide = growth.grown(model)
    assert type(wide) is type(model)
    assert sum(p.numel() for p in wide.parameters()) > sum(p.numel() for p in model.parameters())
    for training in (False, True):
        (expected, gradients), (found, reached) = (learnt(network, example, training) for network in (model, wide))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-8)
        scale = max(float(gradient.abs().max()) for gradient in gradients.values())
        for key, gradient in gradients.items():
            own = growth.narrowed(key, reached[key])
            torch.testing.assert_close(own, gradient, rtol=1e-7, atol=1e-9 * scale, msg=key)
            assert torch.equal(growth.widened(key, own), reached[key]), f"a gradient reaches what is new in {key}"
    assert difference(model, growth, example) is None


@pytest.mark.parametrize("name", NOTICED)
def test_a_network_that_reacts_to_new_channels_is_detected(name: str) -> None:
    model, example, growth = micro_and_growth(name)
    found = difference(model, growth, example)
    assert found is not None
    assert NOTICED[name] in found


def test_a_maximum_of_channels_that_never_passes_zero_by_itself_is_detected_too() -> None:
    class Largest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = unit(3, 60), conv(60, 5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.body(x)
            return self.head(x) * x.amax((1, 2, 3), keepdim=True)  # of 60 channels and 64 pixels, none below zero

    model, example = Largest().double(), (torch.randn(2, 3, 8, 8, dtype=torch.float64),)
    graph = traced(model, example)
    assert [group.frozen for group in graph.free] == [None]
    assert "outputs differ" in (difference(model, Growth(model, graph, (64,)), example) or "")


def test_what_is_new_is_zero_to_the_last_bit_after_training() -> None:
    model, _, growth = micro_and_growth("padded_shortcut", 8)
    wide = growth.grown(model.float()).train()
    optimiser = torch.optim.SGD(wide.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    average = {name: parameter.detach().clone() for name, parameter in wide.named_parameters()}
    for step in range(20):
        inputs = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        wide(inputs).square().mean().backward()
        optimiser.step()
        for name, parameter in wide.named_parameters():
            average[name].lerp_(parameter.detach(), 0.1)
    momentum = {name: optimiser.state[parameter]["momentum_buffer"] for name, parameter in wide.named_parameters()}
    for kind in (average, momentum, {name: parameter.detach() for name, parameter in wide.named_parameters()}):
        for name, value in kind.items():
            assert torch.equal(growth.widened(name, growth.narrowed(name, value)), value), name
    assert any(value.any() for value in momentum.values())


def test_what_grew_can_be_taken_out_again_buffers_included() -> None:
    model, _, growth = micro_and_growth("padded_shortcut")
    wide, other = growth.grown(model), copy.deepcopy(model)
    for value in other.state_dict().values():
        value.zero_()
    held = [id(parameter) for parameter in other.parameters()]
    growth.write_back(wide, other)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())
    assert [id(parameter) for parameter in other.parameters()] == held
    variances = [name for name in wide.state_dict() if name.endswith("running_var")]
    assert all((wide.state_dict()[name] > 0).all() for name in variances)


def test_widths_are_rounded_up_where_layers_see_them() -> None:
    model = nn.Sequential(unit(3, 11), unit(11, 16), conv(16, 5, 1))
    graph = traced(model, torch.randn(2, 3, 8, 8))
    assert rounded_widths(graph, 8) == (16, 16)
    assert rounded_widths(graph, 1) == tuple(graph.full)
    wide = grow(model, graph, (16, 16))
    assert [(layer.in_channels, layer.out_channels) for layer in wide.modules() if isinstance(layer, nn.Conv2d)] == [
        (3, 16),
        (16, 16),
        (16, 5),
    ]


def test_of_groups_side_by_side_one_takes_what_is_missing() -> None:
    """The second stage of a ResNet with padded shortcuts holds the channels of the first between new ones."""
    model, example = BUILT["padded_shortcut"].build(), BUILT["padded_shortcut"].example()
    graph = traced(model, example)
    wide = grow(model, graph, rounded_widths(graph, 8))
    assert all(
        layer.out_channels % 8 == 0
        for name, layer in wide.named_modules()
        if isinstance(layer, nn.Conv2d) and name != "head"
    )


def test_widths_that_do_not_fit_are_rejected() -> None:
    model = nn.Sequential(unit(3, 11), conv(11, 5, 1))
    graph = traced(model, torch.randn(2, 3, 8, 8))
    for widths in ((10,), (16, 16)):
        with pytest.raises(InvalidStructure, match=r"Widths can only grow from \(11,\)"):
            grow(model, graph, widths)
    with pytest.raises(GraphMismatch, match="Trace it again"):
        grow(nn.Sequential(unit(3, 12), conv(12, 5, 1)), graph, (16,))
