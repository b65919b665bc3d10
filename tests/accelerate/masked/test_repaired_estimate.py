"""Masked execution of repaired networks gives the scores of sliced execution."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import aacp
from estimate.repaired_network import estimated, repaired
from estimate.small_network import IMAGES, OTHER, STRUCTURE, network
from graph.micro_networks import MICRO
from sampling import sampled

CONSTRUCTS = (
    "padded_shortcut", "grouped_conv", "inverted_residual", "dense_block", "squeeze_excite_conv", "conv_transpose",
    "flatten_to_linear", "convnext_block", "shufflenet_v2", "weight_norm",
)  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    return aacp.trace(network(), IMAGES[:2])


@pytest.mark.parametrize("importance", sampled(["l1", "activation", "obs"], 3, pytest.mark.slow))
def test_masked_execution_scores_the_same_repaired_network(graph, importance: str) -> None:
    inheritance = repaired(graph, importance=importance)
    sliced = estimated(inheritance)
    masked = estimated(inheritance, "masked")
    for structure in (STRUCTURE, OTHER, list(graph.full), STRUCTURE[::-1]):
        assert masked(structure) == pytest.approx(sliced(structure), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CONSTRUCTS, 2))
def test_masked_and_sliced_networks_are_equal_in_every_construct(name: str) -> None:
    found = next(each for each in MICRO if each.name == name)
    model = found.build()
    example = found.example()
    generator = torch.Generator().manual_seed(2)
    images = tuple(torch.randn(12, *tensor.shape[1:], generator=generator) for tensor in example)
    graph = aacp.trace(model, example)
    inheritance = aacp.Inheritance(model, graph, images[0], importance="obs", reconstruction="repair")
    structure = [max(1, group.width // 2) for group in graph.free]

    def mean_square(network: Any, batches: aacp.Batches) -> float:
        return float(torch.cat([network(inputs) for inputs in batches.inputs()]).double().square().mean())

    scores = [
        aacp.PSAE(inheritance, images[0], score=mean_square, execution=execution)(structure)
        for execution in ("sliced", "masked")
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


@pytest.mark.slow
def test_the_exported_form_is_repaired_masked(graph) -> None:
    exported = aacp.trace(network(), IMAGES[:2], form="exported")
    estimate = estimated(repaired(exported), "auto")
    assert estimate.execution == "masked"
    assert estimate(STRUCTURE) == pytest.approx(estimated(repaired(graph))(STRUCTURE), rel=1e-4)
