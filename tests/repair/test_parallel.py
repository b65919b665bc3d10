"""The parallel form of repair: exact for dependent channels, otherwise the least squares of the original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import aacp
from aacp.graph.surgery import cut_units
from aacp.modules import copy_module, named_tensors
from aacp.repairs import grams as grams_module
from aacp.repairs.grams import Grams
from aacp.repairs.parallel import ParallelRepair
from repair.dependent_networks import KEPT, NETWORKS, build, kept_channels

IMAGES = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.3


def parallel(model: nn.Module, **options: float) -> tuple[ParallelRepair, aacp.ChannelGraph]:
    graph = aacp.trace(model, IMAGES[:2])
    return ParallelRepair(Grams.of(model, graph, aacp.Batches.of(IMAGES)), **options), graph


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


@pytest.mark.parametrize("name", NETWORKS)
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


def test_nothing_removed_changes_nothing() -> None:
    model = build("dense")
    repair, graph = parallel(model)
    twin = copy_module(model).requires_grad_(False)
    tensors = dict(named_tensors(twin))
    repair.apply(tensors, units_without_multiples(graph, "dense"))
    assert not torch.equal(twin.reader.weight, model.reader.weight)
    repair.apply(tensors, graph.kept_units(graph.full))
    assert repair.weights(graph.kept_units(graph.full)) == {}
    for (name, one), (_, other) in zip(named_tensors(twin), named_tensors(model), strict=True):
        assert torch.equal(one, other), name


def test_each_set_of_kept_inputs_is_solved_once() -> None:
    model = build("dense")
    repair, graph = parallel(model)
    stem, reader = sorted(graph.free, key=lambda group: -group.width)
    for kept in (4, 6, 4):
        for outputs in (2, 3, 5):
            repair.weights(graph.kept_units({stem.name: kept, reader.name: outputs}))
    assert repair.solved == 2 + 3  # two sets of inputs of the reader, three of the head


def test_a_full_memo_forgets_what_was_used_longest_ago() -> None:
    model = build("dense")
    repair, graph = parallel(model)
    wanted = {count: graph.kept_units([count, 6]) for count in (3, 4, 5)}
    expected = {count: repair.weights(units)["reader.weight"] for count, units in wanted.items()}
    small, _ = parallel(model, memo_bytes=2 * 4 * (model.reader.weight.numel() + 6))
    for count in (3, 4, 3, 5, 3, 4):
        assert torch.equal(small.weights(wanted[count])["reader.weight"], expected[count])
    assert small.solved == 4  # 3, 4, 5, and 4 again


def test_the_head_that_reads_a_constant_channel_is_still_solved() -> None:
    model = build("dense")
    with torch.no_grad():
        model.stem.weight[:3] = 0
        model.stem.bias[:3] = 1.0
    repair, graph = parallel(model)
    units = graph.kept_units({graph.free[0].name: [0, 4, 5, 6, 7]})
    assert all(torch.isfinite(tensor).all() for tensor in repair.weights(units).values())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("columns", [2304, 20])
def test_one_factorisation_serves_every_width(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of an order of removal are those that are solved for the kept units alone."""
    monkeypatch.setattr(grams_module, "MAX_COLUMNS", columns)
    model = build(name)
    with torch.no_grad():
        for parameter in model.parameters():  # no channel depends on others any more
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    solved, graph = parallel(model)
    order = aacp.Inheritance(model, graph, IMAGES, importance="random").order
    nested = ParallelRepair(solved.grams, order.ranks)
    for share in (0.3, 0.5, 0.7):
        units = order.units([max(1, round(share * group.width)) for group in graph.free])
        expected = solved.weights(units)
        found = nested.weights(units)
        assert expected
        assert found.keys() >= expected.keys()
        present = torch.from_numpy(np.append(units, True))
        for weight, gram in solved.grams.grams.items():
            if weight in expected:
                kept = present[gram.product.column_units][:, None]
                one, other = (gram.product.matrix(weights[weight]) * kept for weights in (found, expected))
                assert torch.allclose(one, other, atol=1e-4 * float(other.abs().max()))
                if gram.product.bias is not None:
                    assert torch.allclose(found[gram.product.bias], expected[gram.product.bias], atol=1e-4)


def test_a_structure_in_the_order_of_removal_needs_no_solve() -> None:
    model = build("dense")
    repair, graph = parallel(model)
    order = aacp.Inheritance(model, graph, IMAGES).order
    nested = ParallelRepair(repair.grams, order.ranks)
    nested.weights(order.units([5, 4]))
    assert nested.solved == 0
    other = graph.kept_units({group.name: np.flatnonzero(order.ranks[: group.width] >= 2) for group in graph.free[:1]})
    assert torch.equal(nested.weights(other)["reader.weight"], repair.weights(other)["reader.weight"])
    assert nested.solved == repair.solved > 0
