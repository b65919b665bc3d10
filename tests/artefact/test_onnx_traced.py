"""The faster exporter: its file is delivered only if it computes what torch does, and no value of a tensor is fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.artefact import onnx as exports
from aacp.artefact.onnx_traced import write_traced
from aacp.graph.examples import FlatNetwork

EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()


class Transposed(nn.Module):
    """The batch is the second dimension of one output, and no dimension of the other."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1).T, x.mean(0)


class Repeated(nn.Module):
    """A dimension of the output is twice the batch size."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, x + 1))


class Branching(nn.Module):
    """Which operator runs depends on the values of the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > -1e9 else x


class Summed(nn.Module):
    """The number of operators depends on the batch size."""

    def forward(self, x: Tensor) -> Tensor:
        return sum((row[None] for row in x), start=x)


def traced(model: nn.Module, path: Path, **settings: Any) -> onnx.GraphProto:
    """The graph that the faster exporter writes."""
    write_traced(
        FlatNetwork(model, (EXAMPLE,)), (EXAMPLE,), path, 18, **{"dynamic_batch": True, "strict": True} | settings
    )
    return onnx.load(path).graph


def sizes(values: Any) -> list[list[int | str]]:
    return [[dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in values]


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that the newer exporter has been called for."""
    called: list[str] = []
    convert = exports.write_program

    def watched(flat: FlatNetwork, *arguments: Any) -> Any:
        called.append(type(flat.network).__name__)
        return convert(flat, *arguments)

    monkeypatch.setattr(exports, "write_program", watched)
    return called


def test_dimensions_that_change_with_the_batch_are_named(tmp_path: Path) -> None:
    graph = traced(Transposed(), tmp_path / "a.onnx")
    assert sizes(graph.input) == [["batch", 3, 8, 8]]
    assert sizes(graph.output) == [[192, "batch"], [3, 8, 8]]
    assert sizes(traced(Transposed(), tmp_path / "b.onnx", dynamic_batch=False).output) == [[192, 1], [3, 8, 8]]


@pytest.mark.slow
def test_a_size_that_is_no_batch_size_is_left_to_the_newer_exporter(tmp_path: Path, newer: list[str]) -> None:
    with pytest.raises(aacp.ExportFailed, match="a size that is not the batch size changes with it"):
        traced(Repeated(), tmp_path / "a.onnx")
    found = aacp.export_onnx(Repeated(), tmp_path / "a.onnx", EXAMPLE)
    assert newer == ["Repeated"]
    assert found.dynamic_batch


@pytest.mark.slow
def test_a_plain_network_needs_the_faster_exporter_alone(tmp_path: Path, newer: list[str]) -> None:
    model = network()
    found = aacp.export_onnx(model, tmp_path / "a.onnx", EXAMPLE)
    assert newer == []
    assert (found.dynamic_batch, found.checked_batches, found.opset) == (True, (1, 2, 5), 18)
    images = torch.randn(7, 3, 8, 8)
    (result,) = onnxruntime.InferenceSession(found.path).run(None, {"input": images.numpy()})
    np.testing.assert_allclose(result, model(images).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert not any(module.training for module in model.modules())


@pytest.mark.slow
def test_no_branch_is_chosen_by_the_values_of_the_example(tmp_path: Path) -> None:
    with pytest.raises(aacp.ExportFailed, match=r"Branching: ValueError: .*Converting a tensor to a Python boolean"):
        traced(Branching(), tmp_path / "a.onnx")
    with pytest.raises(aacp.ExportFailed, match=r"^Branching cannot be converted to ONNX"):
        aacp.export_onnx(Branching(), tmp_path / "b.onnx", EXAMPLE)
    assert [node.op_type for node in traced(Branching(), tmp_path / "c.onnx", strict=False).node].count("Add") == 1


@pytest.mark.slow
def test_a_trace_that_holds_for_one_batch_size_only_is_not_delivered(tmp_path: Path, newer: list[str]) -> None:
    found = aacp.export_onnx(Summed(), tmp_path / "a.onnx", EXAMPLE)
    assert newer == ["Summed"]
    assert not found.dynamic_batch  # the newer exporter fixes the batch size, and says so


@pytest.mark.slow
def test_without_a_comparison_the_newer_exporter_is_used(tmp_path: Path, newer: list[str]) -> None:
    aacp.export_onnx(network(), tmp_path / "a.onnx", EXAMPLE, check=False)
    assert newer == ["Sequential"]


def test_the_program_that_could_not_be_exported_is_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    normed = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3))).eval()
    with pytest.raises(aacp.ExportFailed, match="vdot"):
        traced(normed, tmp_path / "a.onnx")
    assert capfd.readouterr() == ("", "")
