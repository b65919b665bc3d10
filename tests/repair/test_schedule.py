"""The order of execution and the branches of products, in programs with and without operators that write in place."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from aacp.graph.units import UnitProgram
from aacp.graph.unverified import trace_unverified
from aacp.repairs.products import products_of
from aacp.repairs.schedule import Schedule


class Block(nn.Module):
    """A residual block whose shortcut is computed after its branch."""

    def __init__(self, kernel: int, in_place: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.branch = nn.Conv2d(6, 6, 3, padding=1)
        self.shortcut = nn.Conv2d(6, 6, kernel, padding=kernel // 2)
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.stem(x))
        y = self.branch(x)
        if self.in_place:
            x.relu_()
        return torch.relu(y + self.shortcut(x))


def schedule_of(model: nn.Module) -> Schedule:
    x = torch.randn(2, 3, 5, 5)
    _, assembled, arguments = trace_unverified(model.eval(), x)
    labelled = UnitProgram.of(model, assembled.graph, arguments)
    return Schedule.of(labelled.propagation, products_of(labelled, model)[0])


def fitted_order(schedule: Schedule) -> list[str]:
    return [schedule.products[node].weight for node in schedule.order if node in schedule.products]


def branches(schedule: Schedule) -> dict[str, tuple[list[str], float]]:
    """The operators of each product's branch, and the lower bound at its end."""
    return {
        schedule.products[node].weight: ([call.operator for call in branch.calls], branch.lower)
        for node, branch in schedule.branches.items()
    }


def test_the_product_that_reads_more_runs_last_and_aims_at_the_sum() -> None:
    schedule = schedule_of(Block(kernel=1, in_place=False))
    assert fitted_order(schedule) == ["stem.weight", "shortcut.weight", "branch.weight"]
    assert branches(schedule)["branch.weight"] == (["add"], 0.0)
    assert branches(schedule)["shortcut.weight"][0] == []


def test_products_that_read_equally_much_keep_their_order() -> None:
    schedule = schedule_of(Block(kernel=3, in_place=False))
    assert fitted_order(schedule) == ["stem.weight", "branch.weight", "shortcut.weight"]
    assert branches(schedule)["shortcut.weight"] == (["add"], 0.0)


def test_calls_do_not_change_places_with_operators_that_write_in_place() -> None:
    schedule = schedule_of(Block(kernel=1, in_place=True))
    assert fitted_order(schedule) == ["stem.weight", "branch.weight", "shortcut.weight"]


def test_every_call_runs_once_and_after_what_it_reads() -> None:
    schedule = schedule_of(Block(kernel=1, in_place=False))
    nodes = schedule.propagation.program.graph.nodes
    assert sorted(map(str, schedule.order)) == sorted(str(node) for node in nodes if node.op == "call_function")
    for position, node in enumerate(schedule.order):
        earlier = set(schedule.order[:position])
        assert all(source in earlier for source in node.all_input_nodes if source.op == "call_function")


def test_a_sum_whose_other_tensor_depends_on_the_product_ends_the_branch() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 6, 1)
            self.body = nn.Conv2d(6, 6, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return x + self.body(x)

    found = branches(schedule_of(Doubled()))
    assert found["stem.weight"][0] == []  # two calls read it
    assert found["body.weight"][0] == ["add"]


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-1.0, 2.0), nn.Hardswish(), nn.Hardsigmoid(), nn.GELU(), nn.SiLU()],
    ids=lambda activation: type(activation).__name__,
)
def test_an_activation_is_constant_beyond_the_bounds_of_its_branch(activation: nn.Module) -> None:
    schedule = schedule_of(nn.Sequential(nn.Conv2d(3, 6, 1), activation, nn.Conv2d(6, 4, 1)))
    first = schedule.branches[next(node for node in schedule.order if node in schedule.products)]
    for bound, beyond in ((first.lower, -5.0), (first.upper, 5.0)):
        if math.isfinite(bound):
            assert activation(torch.tensor(bound + beyond)) == activation(torch.tensor(bound))
    inside = torch.linspace(max(first.lower, -2.0), min(first.upper, 2.0), 9)
    assert activation(inside).diff().abs().min() > 0


def test_a_clamp_with_numbers_has_their_bounds() -> None:
    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 6, 1)
            self.head = nn.Conv2d(6, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.stem(x).clamp(-0.5, 4).clamp(max=3))

    assert branches(schedule_of(Clamped()))["stem.weight"] == ([], -0.5)
