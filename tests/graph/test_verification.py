"""Verification detects code that fails when it is cut, and freezes only the responsible groups."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.tracing import prepare
from aacp.graph.verification import TOLERANCE, verified


class Trap(nn.Module):
    """Computes a wrong result, without an error, once its middle has lost channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 10, 3)
        self.middle = nn.Conv2d(10, 14, 3)
        self.last = nn.Conv2d(14, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.middle(self.first(x).relu())
        if y.shape[1] != 14:
            y = 1.5 * y
        return self.last(y)


def test_a_group_that_changes_the_result_is_frozen_with_its_reason_and_others_stay_free() -> None:
    graph = aacp.trace(Trap(), torch.randn(1, 3, 9, 9))
    reasons = {group.name: group.frozen for group in graph.groups}
    assert reasons["first"] is None
    assert reasons["middle"] is not None
    assert reasons["middle"].startswith("cutting it breaks the network (outputs differ by")


class Amplifier(nn.Module):
    """Its outputs change with rounding errors of its inputs, far beyond the tolerance in double precision."""

    def __init__(self, trapped: bool) -> None:
        super().__init__()
        self.trapped = trapped
        self.first, self.norm, self.last = nn.Conv2d(3, 10, 3), nn.GroupNorm(1, 10), nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x))
        if self.trapped and y.shape[1] != 10:
            y = y * (1 + 1e-12)  # amplified, this is 1e-5 of the scale of the outputs
        return (3e7 * self.last(y)).sin()


@pytest.mark.slow
def test_amplified_rounding_errors_freeze_nothing_and_amplified_mistakes_do() -> None:
    x = torch.randn(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    model = Amplifier(trapped=False)
    verifier = prepare(model, x).in_double
    units = verifier.assembled.graph.kept_units({"first": [0, 3, 4, 7]})
    difference = verifier._difference(verifier.assembled.graph, units)
    assert isinstance(difference, float)
    assert difference > TOLERANCE[torch.float64]
    assert [group.name for group in aacp.trace(model, x).free] == ["first"]
    with pytest.raises(aacp.NothingToPrune, match="outputs differ by"):
        aacp.trace(Amplifier(trapped=True), x)


def test_verify_freezes_what_a_graph_of_another_width_would_break() -> None:
    model, x = Trap(), torch.randn(1, 3, 9, 9)
    loose = prepare(model, x).assembled.graph  # not yet verified
    assert [group.name for group in loose.free] == ["first", "middle"]
    assert [group.name for group in aacp.verify(model, loose, x).free] == ["first"]


def test_verify_rejects_the_graph_of_another_network() -> None:
    x = torch.randn(1, 3, 9, 9)
    other = aacp.trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)), x)
    with pytest.raises(aacp.GraphMismatch, match="Trace the network again"):
        aacp.verify(Trap(), other, x)


def test_a_mistake_in_a_branch_that_is_scaled_to_nothing_is_seen() -> None:
    class Silenced(Trap):
        """A fresh residual network: the last scale of the branch is zero, so its output shows nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(6, 1, 1))
            self.shortcut = nn.Conv2d(3, 6, 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.shortcut(x) + self.scale * super().forward(x)

    graph = aacp.trace(Silenced(), torch.randn(1, 3, 9, 9))
    assert [group.name for group in graph.groups if group.frozen is None] == ["first"]


def free(model: nn.Module, x: Tensor) -> list[str]:
    return [group.name for group in aacp.trace(model, x).free]


class Shifted(nn.Module):
    """Moves its features by a row once channels are gone: the shape is right, the result is not."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.rest = nn.Sequential(*[nn.Conv2d(width, width, 3, padding=1) for _ in range(depth)])
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.last(self.rest(y.roll(int(y.shape[1] < self.width), dims=2)))


@pytest.mark.slow
def test_a_mistake_far_from_the_output_is_seen_although_signals_fade() -> None:
    assert "first" not in free(Shifted(16, depth=24), torch.randn(1, 3, 8, 8))


def test_a_mistake_behind_a_scale_of_one_element_is_seen() -> None:
    class SkipInit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.shortcut = Shifted(16, depth=1), nn.Conv2d(3, 4, 1)
            self.alpha = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.shortcut(x) + self.alpha * self.inner(x)

    assert "inner.first" not in free(SkipInit(), torch.randn(1, 3, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("fill", [0.0, -1e9, -torch.inf])
@pytest.mark.parametrize("adds", [False, True])
def test_a_mistake_beside_a_large_constant_is_seen(fill: float, adds: bool) -> None:
    class Masking(Trap):
        def forward(self, x: Tensor) -> Tensor:
            there = torch.tensor([0, 0, 0, 0, 0, 1.0]).view(1, 6, 1, 1).bool()
            logits = super().forward(x)
            return logits + torch.where(there, fill, 0.0) if adds else logits.masked_fill(there, fill)

    assert free(Masking(), torch.randn(1, 3, 9, 9)) == ["first"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [8, 11, 16, 24, 32])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_number_for_an_example_varies_enough(width: int, sign: float) -> None:
    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norms = [nn.BatchNorm2d(width), nn.BatchNorm2d(2 * width)]
            self.a, self.b = nn.Conv2d(3, width, 3), nn.Conv2d(width, 2 * width, 3)
            self.norms, self.head = nn.ModuleList(norms), nn.Sequential(nn.Linear(2 * width, 1))
            self.width = width

        def forward(self, x: Tensor) -> Tensor:
            y = self.norms[0](self.a(x)).relu()
            y = y * (1 + 1e-6 * (sign < 0) * (y.shape[1] != self.width))  # a small mistake, or none
            return self.head(self.norms[1](self.b(y)).relu().mean((2, 3)))

    assert free(Regression(), torch.randn(1, 3, 9, 9)) == (["a", "b"] if sign > 0 else ["b"])


def test_code_that_compares_widths_is_found_out() -> None:
    class Careless(nn.Module):
        """Adds a shortcut wherever shapes happen to agree."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(i, o, 3, padding=1) for i, o in [(3, 16), (16, 24), (24, 4)])

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            y = self.b(x).relu()
            return self.c(y + x if x.shape == y.shape else y)

    assert len(free(Careless(), torch.randn(2, 3, 8, 8))) == 1


def test_outputs_that_are_no_floats_are_compared_too() -> None:
    class Decision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)) > 0

    assert free(Decision(), torch.randn(2, 3, 8, 8)) == ["a"]


def test_channels_beside_random_numbers_are_free_and_those_that_get_them_are_not() -> None:
    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.mean, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            mean = self.mean(self.a(x))
            return self.b(mean + torch.randn_like(mean))

    network = Sampler()
    example = torch.randn(2, 3, 8, 8)
    state = torch.get_rng_state()
    assert free(network, example) == ["a"]
    assert torch.equal(torch.get_rng_state(), state)


def test_class_numbers_keep_their_classes() -> None:
    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)).max(1)[1]

    graph = aacp.trace(Segmenter(), torch.randn(2, 3, 8, 8))
    assert [(group.name, group.frozen) for group in graph.groups] == [
        ("a", None),
        ("b", "max in the network returns positions of channels"),
    ]


def test_every_channel_is_absent_from_some_cut_and_each_cut_leaves_some_group_whole() -> None:
    from aacp.graph.verification import random_cuts

    model = nn.Sequential(*[nn.Conv2d(12, 12, 1) for _ in range(12)])
    graph = aacp.trace(model, torch.randn(1, 12, 2, 2))
    first, second, _, equal = random_cuts(graph, seed=0)
    for group in graph.free:
        absent = set(range(group.width)) - (set(first[group.name].tolist()) & set(second[group.name].tolist()))
        assert absent == set(range(group.width)) or len(first[group.name]) == group.width
    assert any(len(kept) == 12 for kept in first.values())
    assert {len(kept) for kept in equal.values()} == {6}


class Scaled(nn.Module):
    """Two convolutions and a factor of a tenth, which is a number or a tensor of the type of the input."""

    def __init__(self, by_tensor: bool) -> None:
        super().__init__()
        self.by_tensor = by_tensor
        self.first = nn.Conv2d(3, 8, 3)
        self.last = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tenth = torch.full((1,), 0.1, dtype=x.dtype) if self.by_tensor else 0.1
        return self.last(self.first(x) * tenth)


@pytest.mark.parametrize("by_tensor", [False, True])
def test_double_precision_needs_an_export_only_if_the_program_has_other_numbers_there(by_tensor: bool) -> None:
    verifier = prepare(Scaled(by_tensor), torch.randn(1, 3, 8, 8))
    double = verifier.in_double
    assert double.arguments[0].dtype == torch.float64
    assert (double.propagation is not verifier.propagation) == by_tensor
    graph = verifier.assembled.graph
    units = graph.kept_units({"first": [0, 3, 5]})
    assert double.difference_when(graph, units) is None


def test_a_search_for_the_next_culprit_starts_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = prepare(nn.Sequential(*[nn.Conv2d(3, 3, 1) for _ in range(17)]), torch.randn(1, 3, 4, 4))
    asked: list[int] = []

    def difference(graph: aacp.ChannelGraph, trial: object, groups: list[str]) -> str | None:
        asked.append(len(groups))
        return "wrong" if {"13", "14"} & set(groups) else None

    monkeypatch.setattr(verifier, "difference", difference)
    monkeypatch.setattr(verifier, "elsewhere", lambda: None)
    graph = verified(verifier, verifier.assembled.graph, seed=0)
    assert [group.name for group in graph.groups if group.frozen == "cutting it breaks the network (wrong)"] == [
        "13",
        "14",
    ]
    # All 16, four halvings; all 15, one halving and the group itself; the rest of the cuts with 14 groups.
    assert asked == [16, 8, 12, 14, 13, 15, 14, 14, 14, 14, 14]
