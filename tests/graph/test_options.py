"""Options of `trace`: frozen layers, unpruned residual streams, and the order of groups."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.tracing import residual_streams


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 10, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(10, 14, 1), nn.ReLU(), nn.Conv2d(14, 10, 1))
        self.gate = nn.Conv2d(10, 10, 1)
        self.head = nn.ModuleDict({"conv": nn.Conv2d(10, 12, 1), "out": nn.Conv2d(12, 4, 1)})

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.block(x)
        return self.head["out"](self.head["conv"](x * self.gate(x).sigmoid()))


def free(**options: object) -> list[str]:
    return [g.name for g in aacp.trace(Residual(), torch.randn(1, 3, 8, 8), **options).free]  # type: ignore[arg-type]


def test_groups_come_in_the_order_of_the_layers_that_make_them() -> None:
    assert free() == ["stem", "block.0", "head.conv"]


@pytest.mark.slow
def test_a_pattern_freezes_layers_and_everything_below_a_module() -> None:
    assert free(frozen=("head.*",)) == ["stem", "block.0"]
    assert free(frozen="head") == ["stem", "block.0"]
    assert free(frozen=["head", "block.0"]) == ["stem"]


def test_a_pattern_that_matches_nothing_says_where_the_names_are() -> None:
    with pytest.raises(
        aacp.InvalidOption, match=r"^frozen='tail' matches no .*\. aacp trace or print\(graph\) lists all names"
    ):
        free(frozen=("tail",))


@pytest.mark.slow
def test_freezing_any_layer_of_a_coupled_group_freezes_the_group() -> None:
    assert free(frozen=("gate",)) == ["block.0", "head.conv"]
    assert free(frozen=("block.2",)) == ["block.0", "head.conv"]


@pytest.mark.slow
def test_the_inner_scope_leaves_residual_streams_alone() -> None:
    graph = aacp.trace(Residual(), torch.randn(1, 3, 8, 8), scope="inner")
    assert [group.name for group in graph.free] == ["block.0", "head.conv"]
    assert graph.groups[0].frozen == "residual stream, left alone by scope='inner'"


def test_residual_streams_of_a_graph_are_found_without_another_scope() -> None:
    x = torch.randn(1, 3, 8, 8)
    assert "stem" in residual_streams(Residual(), aacp.trace(Residual(), x), x)
    wrapped = nn.Sequential(Residual())
    graph = aacp.trace(wrapped, x, parts=["0"])
    left = graph.freeze(dict.fromkeys(residual_streams(wrapped, graph, x), "residual stream"))
    assert [group.name for group in left.free] == ["0.block.0", "0.head.conv"]


def test_a_products_partner_is_no_residual_stream() -> None:
    class Gated(Residual):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return self.head["out"](self.head["conv"](x * self.gate(x).sigmoid()))

    graph = aacp.trace(Gated(), torch.randn(1, 3, 8, 8), scope="inner")
    assert [group.name for group in graph.free] == ["stem", "head.conv"]


class Optional(nn.Module):
    """Takes arguments that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor, times: int = 1, mask: Tensor | None = None) -> Tensor:
        return self.last(self.first(x if mask is None else x * mask)) * times


@pytest.mark.slow
@pytest.mark.parametrize("form", ["module", "exported"])
@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, 8, 8)])
def test_arguments_that_are_no_tensors_are_followed(mask: Tensor | None, form: str) -> None:
    model, x = Optional(), torch.randn(1, 3, 8, 8)
    by_name = {"x": x, "times": 3} | ({} if mask is None else {"mask": mask})
    for example in ((x, 3, mask), by_name):
        graph = aacp.trace(model, example, form=form)
        assert [group.name for group in graph.free] == ["first"]
        assert graph.full.counts == (8,)
    smaller = aacp.shrink(model, graph, [5], example=(x, 3, mask))
    assert smaller(x, 3, mask).shape == (1, 4, 4, 4)


def test_members_name_every_tensor_dimension_of_a_group() -> None:
    graph = aacp.trace(Residual(), torch.randn(1, 3, 8, 8))
    assert set(map(str, graph.groups[0].members)) == {
        *("stem.weight[0]", "stem.bias[0]", "block.0.weight[1]", "block.2.weight[0]", "block.2.bias[0]"),
        *("gate.weight[0]", "gate.weight[1]", "gate.bias[0]", "head.conv.weight[1]"),
    }
