"""Estimates of networks that are repaired by the parallel form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import aacp
from aacp.graph.surgery import cut_units
from aacp.pytorch.modules import copy_module, named_tensors
from estimate.repaired_network import estimated, repaired
from estimate.small_network import CALIBRATION, IMAGES, OTHER, STRUCTURE, network

EXECUTIONS = ["sliced", pytest.param("masked", marks=pytest.mark.accelerated)]


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    return aacp.trace(network(), IMAGES[:2])


@pytest.mark.slow
def test_the_scored_network_is_repaired_and_then_recalibrated(graph) -> None:
    inheritance = repaired(graph)
    units = inheritance.units(STRUCTURE)
    twin = copy_module(inheritance.model).requires_grad_(False)
    for name, tensor in named_tensors(twin):
        tensor.copy_(inheritance.parallel_repair.weights(units).get(name, tensor))
    expected = cut_units(twin, graph, units)
    aacp.recalibrate(expected, CALIBRATION)
    found = inheritance.scored_network(STRUCTURE)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())
    inherited = aacp.Inheritance(network(), graph, CALIBRATION).network(STRUCTURE)
    assert not torch.equal(found[-1].weight, inherited[-1].weight)


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_nothing_removed_is_nothing_repaired(graph, execution: str) -> None:
    plain = aacp.Inheritance(network(), graph, CALIBRATION)
    assert estimated(repaired(graph), execution)(graph.full) == estimated(plain, execution)(graph.full)


@pytest.mark.slow
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_score_does_not_depend_on_structures_before_it(graph, execution: str) -> None:
    first = estimated(repaired(graph), execution)
    first(OTHER)
    assert first(STRUCTURE) == estimated(repaired(graph), execution)(STRUCTURE)


@pytest.mark.slow
def test_error_curves_fall_to_zero_at_the_full_width(graph) -> None:
    curves = aacp.Inheritance(network(), graph, CALIBRATION).error_curves.errors
    assert set(curves) == {group.name for group in graph.free}
    for group in graph.free:
        assert len(curves[group.name]) == group.width + 1
        assert (np.diff(curves[group.name]) <= 1e-12).all()
        assert curves[group.name][-1] == 0


@pytest.mark.slow
def test_obs_has_less_error_at_every_width_than_another_order(graph) -> None:
    by_l1 = aacp.Inheritance(network(), graph, CALIBRATION).error_curves.errors
    by_obs = aacp.Inheritance(network(), graph, CALIBRATION, importance="obs").error_curves.errors
    for name, errors in by_obs.items():
        assert (errors <= by_l1[name] + 1e-9).all()


def test_a_reconstruction_of_another_name_is_rejected(graph) -> None:
    with pytest.raises(aacp.InvalidOption, match="'repare', which is neither 'repair' nor a function"):
        aacp.Inheritance(network(), graph, CALIBRATION, reconstruction="repare")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_delivered_network_is_repaired_layer_by_layer_and_not_recalibrated(graph) -> None:
    inheritance = repaired(graph)
    expected = aacp.shrink(network(), graph, inheritance.kept(STRUCTURE)).eval()
    notes = aacp.repair(expected, network(), graph, inheritance.kept(STRUCTURE), aacp.Batches.of(CALIBRATION))
    found = inheritance.network(STRUCTURE)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())
    assert inheritance.notes == list(notes)
