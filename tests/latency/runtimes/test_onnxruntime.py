"""Pieces are read from ONNX Runtime's own profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.layers import timed_layers
from aacp.latency.runtimes import onnxruntime, quick_onnx
from aacp.latency.runtimes.onnx_pieces import OnnxPieces, piece_seconds, runs_in
from aacp.latency.runtimes.quick_onnx import export_quickly
from aacp.latency.runtimes.runtime import TimedLayer


def node(name: str, start: int, seconds: float, shape: list[int]) -> dict[str, Any]:
    args = {"op_name": name, "output_type_shape": [{"float": shape}]}
    return {"cat": "Node", "name": "x_kernel_time", "ts": start, "dur": 1e6 * seconds, "args": args}


def layer(size: tuple[int, ...], channels: int, is_convolution: bool = True) -> TimedLayer:
    return TimedLayer("layer", is_convolution, size, channels, 1)


WHOLE = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}


def test_reorders_and_activations_belong_to_the_layer_before_them() -> None:
    run = [
        node("ReorderInput", 0, 1.0, [1, 16, 8, 8]),
        node("Conv", 1, 2.0, [1, 16, 8, 8]),
        node("ReorderOutput", 2, 4.0, [1, 16, 8, 8]),
        node("Gemm", 3, 8.0, [1, 10]),
    ]
    found = piece_seconds(run, [layer((8, 8), 12), layer((), 10, is_convolution=False)])
    assert found == pytest.approx([7.0, 8.0])


def test_branches_that_run_in_another_order_are_identified_by_their_size() -> None:
    run = [node("Conv", 0, 1.0, [1, 32, 4, 4]), node("Conv", 1, 2.0, [1, 16, 8, 8])]
    assert piece_seconds(run, [layer((8, 8), 10), layer((4, 4), 30)]) == pytest.approx([2.0, 1.0])


def test_branches_of_one_size_are_identified_by_their_padded_channels() -> None:
    run = [node("Conv", 0, 1.0, [1, 32, 8, 8]), node("Conv", 1, 2.0, [1, 16, 8, 8])]
    assert piece_seconds(run, [layer((8, 8), 10), layer((8, 8), 30)]) == pytest.approx([2.0, 1.0])


def test_the_runs_of_a_profile_are_separated() -> None:
    events = [{"cat": "Session", "name": "model_loading"}, *[node("Conv", 1, 1.0, [1, 1, 1, 1]), WHOLE] * 3]
    assert [len(run) for run in runs_in(events)] == [1, 1, 1]


def test_a_profile_with_other_layers_is_rejected() -> None:
    with pytest.raises(aacp.UntraceableModel, match="runs 0 layers, but the graph has 1"):
        piece_seconds([], [layer((8, 8), 8)])


def test_quantised_layers_are_found_with_the_channels_last() -> None:
    """Of two branches of one size, channels that are not padded tell 24 from 30, although both fill two blocks."""
    run = [
        node("QuantizeLinear", 0, 1.0, [1, 3, 8, 8]),
        node("Transpose", 1, 2.0, [1, 8, 8, 3]),
        node("QLinearConv", 2, 4.0, [1, 8, 8, 24]),
        node("QLinearConv", 3, 8.0, [1, 30, 8, 8]),
        node("QLinearAdd", 4, 16.0, [1, 30, 8, 8]),
        node("QGemm", 5, 32.0, [1, 10]),
        node("DequantizeLinear", 6, 64.0, [1, 10]),
    ]
    layers = [layer((8, 8), 30), layer((8, 8), 24), layer((), 10, is_convolution=False)]
    assert piece_seconds(run, layers) == pytest.approx([24.0, 7.0, 96.0])


@pytest.fixture
def network() -> nn.Module:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3)).eval()


EXAMPLE = torch.randn(1, 3, 16, 16)


def test_a_real_profile_gives_a_time_for_every_layer_each_time_it_is_read(network: nn.Module) -> None:
    graph = aacp.trace(network, EXAMPLE)
    pieces = OnnxPieces(network, EXAMPLE, timed_layers(graph, graph.layers, graph.full), 1, export_quickly)
    folder = pieces._folder
    for count in (4, 2):
        for _ in range(count):
            pieces.run_timed()
            pieces.run()
        recorded = pieces.take_recorded()
        assert [len(seconds) for seconds in recorded] == [2] * count
        assert all(seconds > 0 for run in recorded for seconds in run)
        assert not list(folder.glob("*.json"))
    assert pieces.take_recorded() == []
    del pieces
    assert not folder.exists()


def test_the_quick_export_computes_what_torch_does(network: nn.Module, tmp_path: Path) -> None:
    export_quickly(network, tmp_path / "network.onnx", EXAMPLE)
    (found,) = onnxruntime.OnnxRuntime().prepare(tmp_path / "network.onnx", EXAMPLE, device="cpu", threads=1)()
    torch.testing.assert_close(torch.from_numpy(found), network(EXAMPLE).detach(), rtol=1e-4, atol=1e-5)


def test_a_slow_export_is_logged_once(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("it is gone")

    exported = []
    monkeypatch.setattr(torch.onnx, "export", broken)
    monkeypatch.setattr(quick_onnx, "export_onnx", lambda network, path, example, **_: exported.append(path))
    for name in ("one", "two"):
        export_quickly(network, tmp_path / name, EXAMPLE)
    assert exported == [tmp_path / "one", tmp_path / "two"]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "torch's older exporter cannot export Sequential: RuntimeError: it is gone. The newer one"
    )


# -- int8 -------------------------------------------------------------------------------------------------------------


def int8() -> onnxruntime.OnnxInt8:
    return onnxruntime.OnnxRuntime().quantized(None)


def test_every_layer_runs_in_int8_and_takes_a_time(network: nn.Module) -> None:
    graph = aacp.trace(network, EXAMPLE)
    pieces = int8().prepare_pieces(
        network, EXAMPLE, timed_layers(graph, graph.layers, graph.full), device="cpu", threads=1
    )
    assert isinstance(pieces, OnnxPieces)
    for _ in range(2):
        pieces.run_timed()
    recorded = pieces.take_recorded()
    assert [len(seconds) for seconds in recorded] == [2, 2]
    assert all(seconds > 0 for run in recorded for seconds in run)


def test_time_is_divided_by_macs_with_a_warning_if_layers_are_not_found(
    network: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    layers = [layer((14, 14), 16), layer((12, 12), 24), TimedLayer("third", True, (1, 1), 1, 2)]
    pieces = int8().prepare_pieces(network, EXAMPLE, layers, device="cpu", threads=1)
    pieces.run_timed()
    ((first, second, third),) = pieces.take_recorded()
    assert first == second == pytest.approx(third / 2)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "Sequential in int8: ONNX Runtime runs 2 layers, but the graph has 3" in message
    assert "in proportion to their MACs" in message
