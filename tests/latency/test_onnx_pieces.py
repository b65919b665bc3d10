"""Pieces are read from ONNX Runtime's own profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.channels import Layer
from aacp.latency.onnx_pieces import CONVOLUTIONS, PRODUCTS, OnnxPieces, draft_onnx, pieces_of, runs_in


def node(name: str, start: int, seconds: float, shape: list[int]) -> dict[str, Any]:
    args = {"op_name": name, "output_type_shape": [{"float": shape}]}
    return {"cat": "Node", "name": "x_kernel_time", "ts": start, "dur": 1e6 * seconds, "args": args}


def layer(name: str, size: tuple[int, ...], kind: str = "conv2d") -> Layer:
    return Layer(name, kind, (3, 3), size, None, None, 1, ())


WHOLE = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}
BEGINS = CONVOLUTIONS | PRODUCTS


def test_reorders_and_activations_belong_to_the_layer_before_them() -> None:
    run = [
        node("ReorderInput", 0, 1.0, [1, 16, 8, 8]),
        node("Conv", 1, 2.0, [1, 16, 8, 8]),
        node("ReorderOutput", 2, 4.0, [1, 16, 8, 8]),
        node("Gemm", 3, 8.0, [1, 10]),
        WHOLE,
    ]
    found = pieces_of(run, [layer("a", (8, 8)), layer("b", (), "linear")], [12, 10], BEGINS)
    assert found == pytest.approx([7.0, 8.0])


def test_branches_that_run_in_another_order_are_told_by_their_size() -> None:
    run = [node("Conv", 0, 1.0, [1, 32, 4, 4]), node("Conv", 1, 2.0, [1, 16, 8, 8]), WHOLE]
    assert pieces_of(run, [layer("a", (8, 8)), layer("b", (4, 4))], [10, 30], BEGINS) == pytest.approx([2.0, 1.0])


def test_runs_are_told_apart() -> None:
    events = [{"cat": "Session", "name": "model_loading"}, *[node("Conv", 1, 1.0, [1, 1, 1, 1]), WHOLE] * 3]
    assert [len(run) for run in runs_in(events)] == [2, 2, 2]


def test_a_profile_with_other_layers_is_refused() -> None:
    with pytest.raises(aacp.UntraceableModel, match="runs 0 layers, but the graph has 1"):
        pieces_of([WHOLE], [layer("a", (8, 8))], [8], BEGINS)


def test_a_real_profile_gives_a_time_for_every_layer(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3)).eval()
    example = torch.randn(1, 3, 16, 16)
    graph = aacp.trace(model, example)
    draft_onnx(model, tmp_path / "network.onnx", example)
    pieces = OnnxPieces(tmp_path / "network.onnx", example, graph.layers, [16, 24])
    for _ in range(4):
        pieces.note()
        pieces.whole()
    notes = pieces.notes()
    assert [len(note) for note in notes] == [2, 2, 2, 2]
    assert sum(map(sum, notes)) > 0
    assert not list(tmp_path.glob("*.json"))
