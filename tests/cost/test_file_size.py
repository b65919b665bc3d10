"""The size of the file of a pruned network, header included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from pipeline.tiny_run import UNTRAINED, network, pruned


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.25, 0.6, 1.0])
@pytest.mark.parametrize(
    ("model", "shape"), [(network(), (1, 1, 8, 8)), (aacp.build_model("digits_resnet"), (1, 1, 8, 8))]
)
def test_it_is_at_least_that_of_the_file_and_little_more(
    model: nn.Module, shape: tuple[int, ...], share: float, tmp_path: Path
) -> None:
    example = torch.zeros(shape)
    graph = aacp.trace(model, example)
    # The channels with the highest indices, whose text is the longest.
    kept = [list(range(width - max(1, int(share * width)), width)) for width in graph.full]
    smaller = aacp.shrink(model, graph, kept)
    place = tmp_path / "smaller.safetensors"
    aacp.save(smaller, graph, place, kept=kept, model="some.package.of.a.user:build_the_network", example=example)
    found = aacp.file_size(graph)(list(map(len, kept)))
    assert found - 2000 < place.stat().st_size <= found
    assert aacp.file_size(graph).full >= found


@pytest.mark.slow
def test_a_limit_holds_for_the_file_that_is_delivered(tmp_path: Path) -> None:
    full = aacp.file_size(aacp.trace(network(), torch.zeros(1, 1, 8, 8))).full
    limit = int(full) - 1000
    found = pruned(tmp_path, budget={"file_size": str(limit)}, plan=UNTRAINED)
    assert found.file.stat().st_size <= limit
    assert f"at most {limit:,}" in str(found)
