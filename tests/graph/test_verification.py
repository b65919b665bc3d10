"""Verification: a network whose code breaks when cut is found out, and only what breaks is frozen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.graph.tracing import prepare


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


def test_verify_freezes_what_a_graph_of_another_width_would_break() -> None:
    model, x = Trap(), torch.randn(1, 3, 9, 9)
    loose = prepare(model, x).assembled.graph  # not yet verified
    assert [group.name for group in loose.free] == ["first", "middle"]
    assert [group.name for group in aacp.verify(model, loose, x).free] == ["first"]


def test_verify_refuses_the_graph_of_another_network() -> None:
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
