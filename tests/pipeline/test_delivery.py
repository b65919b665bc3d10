"""Delivery: the file of a pruned network is complete, wherever a run was interrupted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.utils.data import DataLoader

import aacp
from aacp.latency.deployment import Deployment
from aacp.latency.timing import Timing
from aacp.pipeline import delivery
from aacp.pipeline.delivery import export_both, file_bytes, is_complete
from aacp.runs.folder import RunFolder
from pipeline.tiny_run import UNTRAINED


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_file_that_was_cut_short_is_not_complete(model, graph, tmp_path: Path, share: float) -> None:
    path = tmp_path / "pruned.safetensors"
    assert not is_complete(path)
    aacp.save(model, graph, path)
    assert is_complete(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert not is_complete(path)


def test_the_size_as_a_file_counts_weights_in_the_same_memory_by_their_names() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1))
    network[2].weight = nn.Parameter(network[1].weight.data)
    graph = aacp.trace(network, torch.randn(1, 3, 4, 4))
    assert file_bytes(network, graph) == len(save({key: value.clone() for key, value in network.state_dict().items()}))


@pytest.mark.slow
def test_each_network_is_reported_with_its_own_time(model, example, tmp_path: Path, monkeypatch) -> None:
    seconds = {"original": (4.0, 5.0, 6.0), "pruned": (1.0, 2.0, 3.0)}
    timings = {name: Timing(name, values) for name, values in seconds.items()}
    monkeypatch.setattr(delivery, "time_networks", lambda *_, **__: timings)
    record = export_both(RunFolder(tmp_path), model, model, example, Deployment("torch", threads=1, batch=3))
    assert record is not None
    assert [timing.runtime.split()[0] for timing in record.timings] == ["torch", "ONNX"]
    for timing in record.timings:
        assert (timing.before.low_seconds, timing.before.seconds, timing.before.high_seconds) == (4.5, 5.0, 5.5)
        assert (timing.after.low_seconds, timing.after.seconds, timing.after.high_seconds) == (1.5, 2.0, 2.5)
        assert (timing.low_speedup, timing.high_speedup) == (2.0, 4.0)  # of 4 / 1, 5 / 2 and 6 / 3
        assert timing.times == timing.median_speedup == 2.5
        assert (timing.batch_size, timing.repeats, timing.device) == (3, 3, "CPU")


class ColourAndDepth(nn.Module):
    """A network of two images."""

    def __init__(self) -> None:
        super().__init__()
        self.colour, self.depth, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(1, 8, 1), nn.Linear(8, 2)

    def forward(self, colour: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        return self.head((self.colour(colour) + self.depth(depth)).relu().mean((2, 3)))


@pytest.mark.slow
def test_inputs_by_name_in_another_order_than_the_arguments_are_exported_and_timed(tmp_path: Path) -> None:
    inputs = [{"depth": torch.randn(1, 4, 4), "colour": torch.randn(3, 4, 4)} for _ in range(16)]
    parts = [DataLoader([(each, number % 2) for number, each in enumerate(inputs)], batch_size=8) for _ in range(3)]
    plan = replace(UNTRAINED, export=True, mimic=0)
    pruned = aacp.prune(ColourAndDepth(), aacp.Data(*parts), {"macs": 0.4}, tmp_path, plan=plan)
    for runtime in ("torch", "ONNX Runtime"):
        assert re.search(rf"{runtime} \S+, .* ms ", str(pruned))
