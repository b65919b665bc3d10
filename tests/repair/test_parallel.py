"""The parallel form of repair: exact for dependent channels, otherwise the least squares of the original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aacp
from aacp.graph.surgery import cut_units
from aacp.pytorch.modules import copy_module, named_tensors
from aacp.repairs import grams as grams_module
from aacp.repairs.grams import Grams
from aacp.repairs.parallel import ParallelRepair
from repair.dependent_networks import KEPT, NETWORKS, build, kept_channels
from sampling import sampled

IMAGES = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.3


def parallel(model: nn.Module, **options: float) -> tuple[ParallelRepair, aacp.ChannelGraph]:
    """The repair of a network whose units are removed from the last to the first, and its graph."""
    graph = aacp.trace(model, IMAGES[:2])
    ranks = np.concatenate([np.arange(group.width) for group in graph.groups])
    return ParallelRepair(Grams.of(model, graph, aacp.Batches.of(IMAGES)), ranks, **options), graph


def units_without_multiples(graph: aacp.ChannelGraph, name: str) -> np.ndarray:
    """The units that are left when the dependent channels of the stem are removed."""
    (group,) = (group for group in graph.free if "stem" in graph.producer_names(group))
    if group.width == KEPT:  # a grouped reader ties channels in pairs
        return graph.kept_units({group.name: [0, 1]})
    return graph.kept_units({group.name: kept_channels(name)})


def repaired(model: nn.Module, repair: ParallelRepair, graph: aacp.ChannelGraph, units: np.ndarray) -> nn.Module:
    twin = copy_module(model).requires_grad_(False)
    repair.apply(dict(named_tensors(twin)), units)
    return cut_units(twin, graph, units)


@pytest.mark.parametrize("name", sampled(NETWORKS, 4, pytest.mark.slow))
def test_dependent_channels_are_replaced_exactly(name: str) -> None:
    model = build(name)
    repair, graph = parallel(model)
    units = units_without_multiples(graph, name)
    assert not units.all()
    network = repaired(model, repair, graph, units)
    with torch.no_grad():
        expected = model(IMAGES)
        inherited = cut_units(model, graph, units)(IMAGES)
        assert (network(IMAGES) - expected).abs().max() < 1e-4 * expected.abs().max()
        assert (inherited - expected).abs().max() > 0.05 * expected.abs().max()


@pytest.mark.slow
def test_dependent_channels_are_replaced_exactly_in_the_channel_form(monkeypatch) -> None:
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", 20)
    for name in ("dense", "flattened", "transposed"):
        model = build(name)
        repair, graph = parallel(model)
        assert repair.grams.notes
        network = repaired(model, repair, graph, units_without_multiples(graph, name))
        with torch.no_grad():
            assert torch.allclose(network(IMAGES), model(IMAGES), atol=1e-4)


def test_other_channels_are_replaced_by_least_squares() -> None:
    """Compared with numpy's least squares on all windows of the original, for a layer with a bias."""
    torch.manual_seed(0)
    model = build("dense")
    nn.init.normal_(model.stem.weight, std=0.3)  # no channel depends on others any more
    repair, graph = parallel(model, ridge=1e-9)
    group = next(group for group in graph.free if "stem" in graph.producer_names(group))
    kept = [1, 2, 5, 6, 7]
    found = repair.weights(graph.kept_units({group.name: kept}))
    with torch.no_grad():
        hidden = model.stem(IMAGES).relu()
        target = model.reader(hidden).movedim(1, 3).reshape(-1, 6).double().numpy()
        windows = F.unfold(hidden[:, kept], 3, padding=1).movedim(1, 2).flatten(0, 1).double().numpy()
    solution, *_ = np.linalg.lstsq(np.column_stack([windows, np.ones(len(windows))]), target, rcond=None)
    assert np.allclose(found["reader.weight"][:, kept].flatten(1), solution[:-1].T, atol=1e-4)
    assert np.allclose(found["reader.bias"], solution[-1], atol=1e-4)


@pytest.mark.slow
def test_nothing_removed_changes_nothing() -> None:
    model = build("dense")
    repair, graph = parallel(model)
    twin = copy_module(model).requires_grad_(False)
    tensors = dict(named_tensors(twin))
    repair.apply(tensors, units_without_multiples(graph, "dense"))
    assert not torch.equal(twin.reader.weight, model.reader.weight)
    repair.apply(tensors, graph.kept_units(graph.full))
    for (name, one), (_, other) in zip(named_tensors(twin), named_tensors(model), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.slow
def test_the_head_that_reads_a_constant_channel_is_still_solved() -> None:
    model = build("dense")
    with torch.no_grad():
        model.stem.weight[:3] = 0
        model.stem.bias[:3] = 1.0
    repair, graph = parallel(model)
    units = graph.kept_units({graph.free[0].name: [0, 4, 5, 6, 7]})
    assert all(torch.isfinite(tensor).all() for tensor in repair.weights(units).values())


@pytest.mark.parametrize("name", sampled(NETWORKS, 8, pytest.mark.slow))
@pytest.mark.parametrize("columns", [2304, 20])
def test_one_factorisation_serves_every_width(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of an order of removal are those of the same units without any order."""
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", columns)
    model = build(name)
    with torch.no_grad():
        for parameter in model.parameters():  # no channel depends on others any more
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    repair, graph = parallel(model)
    ranks = aacp.Inheritance(model, graph, IMAGES, importance="random").order.ranks
    ordered = ParallelRepair(repair.grams, ranks)
    for share in (0.3, 0.5, 0.7):
        units = ranks < np.maximum(1, np.round(share * widths_of_groups(graph)))
        expected = repair.weights(units)
        found = ordered.weights(units)
        assert found.keys() == expected.keys() != set()
        for weight in expected:
            assert torch.allclose(found[weight], expected[weight], atol=1e-4 * float(expected[weight].abs().max()))


def widths_of_groups(graph: aacp.ChannelGraph) -> np.ndarray:
    """For each unit the width of its group; more than any rank where the group is frozen."""
    widths = np.array([group.width if group.frozen is None else np.inf for group in graph.groups])
    return widths[graph.unit_groups]


class Concatenation(nn.Module):
    """Two convolutions whose channels one reader sees side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(3, 4, 1)
        self.wide = nn.Conv2d(3, 6, 3, padding=1)
        self.reader = nn.Conv2d(10, 5, 3, padding=1)
        self.head = nn.Linear(5, 2)

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.narrow(x), self.wide(x)], dim=1).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.reader(self.hidden(x)).mean((2, 3)))


@pytest.mark.slow
def test_a_reader_of_two_groups_has_the_least_squares_of_what_is_left() -> None:
    torch.manual_seed(0)
    model = Concatenation().eval()
    repair, graph = parallel(model, ridge=1e-9)
    units = graph.kept_units([2, 4, 5])
    kept = [0, 1, 4, 5, 6, 7]
    with torch.no_grad():
        hidden = model.hidden(IMAGES)
        target = model.reader(hidden).movedim(1, 3).reshape(-1, 5).double().numpy()
        windows = F.unfold(hidden[:, kept], 3, padding=1).movedim(1, 2).flatten(0, 1).double().numpy()
    solution, *_ = np.linalg.lstsq(np.column_stack([windows, np.ones(len(windows))]), target, rcond=None)
    found = repair.weights(units)
    assert np.allclose(found["reader.weight"][:, kept].flatten(1), solution[:-1].T, atol=1e-4)
    assert np.allclose(found["reader.bias"], solution[-1], atol=1e-4)
    assert float(found["reader.weight"][:, [2, 3, 8, 9]].abs().max()) < 1e-10
