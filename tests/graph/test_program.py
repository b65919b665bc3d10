"""Exported programs: blocks under autocast or no_grad, shared weights, tensors outside of modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import aacp
from aacp.graph.program import to_program
from aacp.pytorch.modules import copy_module, named_tensors


class Wrapped(nn.Module):
    """A part of the code runs under autocast, another without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 10, 3), nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        with torch.autocast("cpu", enabled=False):
            y = self.b(x).relu()
            z = y * 2
        with torch.no_grad():
            scale = y.mean((2, 3), keepdim=True)
        return self.c(z * scale)


def test_blocks_that_the_exporter_keeps_apart_are_followed() -> None:
    graph = aacp.trace(Wrapped(), torch.randn(1, 3, 8, 8))
    assert [(group.name, group.width) for group in graph.free] == [("a", 8), ("b", 10)]
    assert graph.notes == ()


def test_shared_weights_have_one_name() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1))
    model[1].weight = model[0].weight
    assert [name for name, _ in named_tensors(model)] == ["0.weight", "0.bias", "1.bias"]
    program = to_program(model.eval(), (torch.randn(1, 4, 2, 2),))
    assert sorted(set(program.tensors.values())) == ["0.bias", "0.weight", "1.bias"]


def test_a_copy_keeps_sharing_and_takes_tensors_that_deepcopy_rejects() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1))
    model[1].weight = model[0].weight
    model[0].seen = model[0].weight * 2  # not a leaf: copy.deepcopy raises on it
    twin = copy_module(model)
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight is not model[0].weight
    assert torch.equal(twin[0].seen, model[0].seen)


def test_a_hook_of_a_copy_is_not_a_hook_of_the_original() -> None:
    layer = nn.Linear(1, 1)
    copy_module(layer).register_forward_hook(lambda *_: torch.zeros(()))
    assert layer(torch.ones(1)).shape == (1,)


def test_a_plain_tensor_attribute_is_cut_with_its_channels() -> None:
    class Offset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
            self.offset = torch.randn(8, 1, 1)  # neither parameter nor buffer

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x) + self.offset)

    model, x = Offset(), torch.randn(1, 3, 4, 4)
    graph = aacp.trace(model, x)
    smaller = aacp.shrink(model, graph, {"a": [1, 5, 6]})
    assert torch.equal(smaller.offset, model.offset[[1, 5, 6]])
    hidden = model.a(x)[:, [1, 5, 6]] + model.offset[[1, 5, 6]]
    expected = nn.functional.conv2d(hidden, model.b.weight[:, [1, 5, 6]], model.b.bias)
    torch.testing.assert_close(smaller(x), expected)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(1, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, image: Tensor, depth: Tensor, scale: float = 2.0) -> dict[str, Tensor]:
        return {"y": self.c(self.a(image) + scale * self.b(depth))}


def test_inputs_can_be_given_in_a_tuple_or_by_name() -> None:
    image, depth = torch.randn(1, 3, 4, 4), torch.randn(1, 1, 4, 4)
    graph = aacp.trace(TwoInputs(), (image, depth))
    assert [(group.name, group.width) for group in graph.free] == [("a", 8)]
    assert aacp.trace(TwoInputs(), {"depth": depth, "image": image}) == graph


def test_a_dictionary_that_is_itself_the_input_is_passed_whole() -> None:
    class Batch(TwoInputs):
        def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
            return super().forward(batch["image"], batch["depth"])

    graph = aacp.trace(Batch(), {"image": torch.randn(1, 3, 4, 4), "depth": torch.randn(1, 1, 4, 4)})
    assert [(group.name, group.width) for group in graph.free] == [("a", 8)]
