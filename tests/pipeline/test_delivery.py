"""Delivery: the file of a pruned network is there and whole, however a run was stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import aacp
from aacp.pipeline.delivery import save_network
from aacp.runs.folder import RunFolder


def everything(graph: aacp.ChannelGraph) -> dict[str, np.ndarray]:
    return {group.name: np.arange(group.width) for group in graph.free}


def saved(folder: Path, model: torch.nn.Module, graph: aacp.ChannelGraph, example: torch.Tensor) -> Path:
    return save_network(RunFolder(folder), model, graph, everything(graph), "digits_resnet", example)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_file_that_was_cut_short_is_written_anew(model, graph, example, tmp_path: Path, share: float) -> None:
    path = saved(tmp_path, model, graph, example)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert saved(tmp_path, model, graph, example).read_bytes() == whole


def test_a_whole_file_is_left_alone(model, graph, example, tmp_path: Path) -> None:
    path = saved(tmp_path, model, graph, example)
    before = path.read_bytes(), path.stat().st_mtime_ns
    other = aacp.build_model("digits_resnet")
    assert saved(tmp_path, other, graph, example) == path
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
