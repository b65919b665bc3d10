"""Rules of operators: user-defined rules, and rules that fail or do not support a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.labels import Labels, along
from aacp.graph.masking import MASKED_OPERATORS, MaskedRun
from aacp.graph.program import Call
from aacp.graph.propagation import STRICT, Propagation
from aacp.graph.rules import RULES

X = torch.randn(2, 3, 8, 8)


@torch.library.custom_op("aacp_tests::sharpen", mutates_args=())
def sharpen(x: Tensor) -> Tensor:
    """Element by element."""
    return x * x.abs()


@torch.library.custom_op("aacp_tests::scale", mutates_args=())
def scale(x: Tensor, factors: Tensor) -> Tensor:
    """One factor per channel."""
    return x * factors[:, None, None]


@torch.library.custom_op("aacp_tests::centre", mutates_args=())
def centre(x: Tensor) -> Tensor:
    """Subtracts the mean over channels: the result depends on which channels there are."""
    return x - x.mean(1, keepdim=True)


@sharpen.register_fake
@centre.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@scale.register_fake
def _(x: Tensor, factors: Tensor) -> Tensor:
    return torch.empty_like(x)


def scale_rule(p: Propagation, call: Call) -> Labels:
    p.tie_lanes(p.lane(call["x"], 1, call.where), p.lane(call["factors"], 0, call.where), call.where)
    return p.labels_of(call["x"])


def same_rule(p: Propagation, call: Call) -> Labels:
    return p.labels_of(call["x"])


def masked_centre(run: MaskedRun, call: Call) -> Tensor:
    present = run.presence(call["x"])
    mean = run.filled(call["x"], 0.0).sum(1, keepdim=True) / present.sum(1, keepdim=True)
    return run.value(call["x"]) - mean


class Network(nn.Module):
    def __init__(self, operator: str) -> None:
        super().__init__()
        self.operator = operator
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.factors = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.operator == "scale":
            x = torch.ops.aacp_tests.scale(x, self.factors)
        else:
            x = getattr(torch.ops.aacp_tests, self.operator)(x)
        return self.last(x)


@pytest.fixture(autouse=True)
def _registered_for_one_test() -> Iterator[None]:
    tables = (RULES, MASKED_OPERATORS)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)  # type: ignore[arg-type]


def state(operator: str) -> str | None:
    """Why the channels that enter the operator are frozen, None if they are free."""
    return aacp.trace(Network(operator), X).groups[0].frozen


@pytest.mark.parametrize("operator", ["sharpen", "scale", "centre"])
def test_an_operator_without_a_rule_freezes_what_enters_it(operator: str) -> None:
    with pytest.raises(aacp.NothingToPrune, match=f"aacp_tests::{operator} .*has no rule"):
        aacp.trace(Network(operator), X)


def test_an_elementwise_operator_takes_the_rule_of_relu() -> None:
    aacp.register_rule("aacp_tests::sharpen", "relu")
    assert state("sharpen") is None


def test_a_rule_ties_the_parameters_of_a_custom_operator_to_its_channels() -> None:
    aacp.register_rule("aacp_tests::scale", scale_rule)
    model = Network("scale").eval()
    graph = aacp.trace(model, X)
    assert aacp.Member("factors", 0) in graph.groups[0].members
    smaller = aacp.shrink(model, graph, {"first": [1, 2, 5]})
    assert smaller.factors.tolist() == model.factors[[1, 2, 5]].tolist()
    inner = model.first(X)[:, [1, 2, 5]] * model.factors[[1, 2, 5], None, None]
    expected = nn.functional.conv2d(inner, model.last.weight[:, [1, 2, 5]], model.last.bias)
    torch.testing.assert_close(smaller(X), expected)


def test_an_operator_that_mixes_channels_needs_its_masked_form() -> None:
    aacp.register_rule("aacp_tests::centre", same_rule)
    with pytest.raises(aacp.NothingToPrune, match="cutting it breaks the network"):
        aacp.trace(Network("centre"), X)
    aacp.register_rule("aacp_tests::centre", same_rule, masked=masked_centre)
    assert state("centre") is None


def test_a_wrong_rule_is_found_by_verification() -> None:
    def wrong(p: Propagation, call: Call) -> Labels:
        return p.labels_of(call["x"])  # forgets the factors, which keep their size

    aacp.register_rule("aacp_tests::scale", wrong)
    with pytest.raises(aacp.NothingToPrune, match="cutting it breaks the network"):
        aacp.trace(Network("scale"), X)


def test_a_rule_may_say_that_it_does_not_know_a_call() -> None:
    def modest(p: Propagation, call: Call) -> Labels:
        raise aacp.UnsupportedUse("it has a moon phase")

    aacp.register_rule("aacp_tests::sharpen", modest)
    with pytest.raises(aacp.NothingToPrune, match="not supported: it has a moon phase"):
        aacp.trace(Network("sharpen"), X)


def broken(p: Propagation, call: Call) -> Labels:
    return (along(p.lane(call["x"], 1, call.where), 17, call.shape),)  # type: ignore[arg-type]


def test_a_rule_that_fails_raises_in_tests() -> None:
    aacp.register_rule("aacp_tests::sharpen", broken)
    with pytest.raises(IndexError):
        aacp.trace(Network("sharpen"), X)


def test_a_rule_that_fails_freezes_and_warns_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT)
    aacp.register_rule("aacp_tests::sharpen", broken)
    with (
        pytest.warns(UserWarning, match="rule for aacp_tests::sharpen .* failed: IndexError.*report"),
        pytest.raises(aacp.NothingToPrune, match=r"has a rule that failed \(IndexError"),
    ):
        aacp.trace(Network("sharpen"), X)


def test_built_in_rules_cannot_be_replaced_and_unknown_models_are_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match="built-in rule"):
        aacp.register_rule("relu", same_rule)
    with pytest.raises(aacp.InvalidOption, match="no rule for an operator 'swish'"):
        aacp.register_rule("aacp_tests::sharpen", "swish")


def test_the_examples_in_the_documentation_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {"aacp": aacp, "torch": torch}  # earlier blocks of the page import them
    for block in (block for block in blocks if "register_rule" in block):
        exec(compile(block, "docs/extending.md", "exec"), names)
    assert [group.name for group in names["centred"].free] == ["first"]


class DataDependent(nn.Module):
    """Uses a shape, a number and a place that depend on the data beside a plain network."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x)).mean((2, 3))
        if self.kind == "mask":
            return self.last(x[x.sum(1) > 0])
        if self.kind == "repeat":
            return self.last(x.repeat_interleave(torch.tensor([1, 2]), 0))
        return self.last(x.narrow(1, torch.tensor(0), 6))


@pytest.mark.parametrize("kind", ["mask", "repeat", "narrow"])
def test_what_depends_on_the_data_freezes_its_channels_and_no_others(kind: str) -> None:
    graph = aacp.trace(DataDependent(kind), X)
    assert [group.name for group in graph.free] == ["first"]
    assert "not supported" in str(graph.groups[1].frozen)


def test_tiled_channels_are_followed() -> None:
    class Tiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).mean((2, 3), keepdim=True).tile((3, 3)))

    assert [group.name for group in aacp.trace(Tiled(), X).free] == ["first"]
