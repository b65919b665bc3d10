"""Files in int8: what is quantised, with how many bits, and what is rejected."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.artefact import onnx_int8
from aacp.artefact.onnx_int8 import are_products_exact, quantize_file
from aacp.latency.runtimes.quick_onnx import export_quickly

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 5)).eval()


def written(folder: Path, model: nn.Module, images: Any = (EXAMPLE,)) -> tuple[Path, int]:
    export_quickly(model, folder / "float.onnx", EXAMPLE)
    return folder / "int8.onnx", quantize_file(folder / "float.onnx", folder / "int8.onnx", images)


def weights_of(path: Path) -> list[Any]:
    """The weights in int8 of convolutions."""
    arrays = [onnx.numpy_helper.to_array(entry) for entry in onnx.load(str(path)).graph.initializer]
    return [array for array in arrays if array.dtype == "int8" and array.ndim == 4]


@pytest.mark.slow
def test_all_layers_are_quantised_with_a_scale_for_each_channel(tmp_path: Path) -> None:
    path, layers = written(tmp_path, network())
    assert layers == 3
    graph = onnx.load(str(path)).graph
    sizes = {len(array) for entry in graph.initializer if (array := onnx.numpy_helper.to_array(entry)).ndim == 1}
    assert {8, 4} <= sizes  # the scales of both convolutions
    assert [array.shape for array in weights_of(path)] == [(8, 3, 3, 3), (4, 8, 3, 3)]
    assert not list(tmp_path.glob("*.prepared"))


@pytest.mark.parametrize(("is_exact", "largest"), [(True, 127), (False, 64)])
def test_weights_have_seven_bits_where_sums_of_products_overflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_exact: bool, largest: int
) -> None:
    monkeypatch.setattr(onnx_int8, "are_products_exact", lambda: is_exact)
    path, _ = written(tmp_path, network())
    assert max(abs(array.astype(int)).max() for array in weights_of(path)) == largest


def test_products_are_exact_on_a_processor_with_vnni() -> None:
    """The flags of the kernel's list of processors are an oracle, where there is such a list."""
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or "vnni" not in flags.read_text():
        pytest.skip("this processor is not known to have VNNI")
    assert are_products_exact()


def test_the_ranges_are_those_of_the_given_inputs(tmp_path: Path) -> None:
    """The scale of the input is its range over 255: a wider range gives a larger step."""
    path, _ = written(tmp_path, network(), [torch.full((2, 3, 8, 8), -50.0), torch.full((2, 3, 8, 8), 205.0)])
    graph = onnx.load(str(path)).graph
    first = next(
        node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] == graph.input[0].name
    )
    known = {entry.name: onnx.numpy_helper.to_array(entry) for entry in graph.initializer}
    assert float(known[first.input[1]]) == pytest.approx(1.0)
    assert int(known[first.input[2]]) == 50


def test_a_network_without_layers_to_quantise_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"has 0 convolutions and linear layers .* Use the precision float32"):
        written(tmp_path, nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)))


def test_an_error_of_the_quantiser_is_explained(tmp_path: Path) -> None:
    (tmp_path / "float.onnx").write_bytes(b"nonsense")
    with pytest.raises(aacp.ExportFailed, match=r"cannot quantise float.onnx: .*Use the precision float32"):
        quantize_file(tmp_path / "float.onnx", tmp_path / "int8.onnx", [EXAMPLE])
    assert [path.name for path in tmp_path.iterdir()] == ["float.onnx"]


def test_the_root_logger_is_left_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    written(tmp_path, network())
    assert (root.level, list(root.handlers)) == before
    assert "pre-processing" not in capfd.readouterr().err
