"""Networks in int8: one suite for all runtimes that quantise, and one for what they share, which needs no package."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.latency.layers import timed_layers
from aacp.latency.runtimes import nncf_int8, registry
from aacp.latency.runtimes.converted import RunFile
from aacp.latency.runtimes.int8 import Calibration, Int8
from aacp.latency.runtimes.runtime import QuantizedFile, Runtime
from aacp.pytorch.modules import copy_module

QUANTISING = ("onnxruntime", "openvino", "executorch")
EXAMPLE = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def int8(name: str, images: list[Any] | None = None) -> Runtime:
    runtime = registry.find_runtime(name).quantized(images)
    if not runtime.is_installed:
        pytest.skip(f"{name} or its quantiser is not installed")
    return runtime


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 64, 3), nn.Flatten(), nn.Linear(64 * 144, 4)
    ).eval()


class ByName(nn.Module):
    """A network whose inputs are named, in another order than that of its arguments in the dictionary below."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 8, 3)
        self.right = nn.Conv2d(1, 8, 3)

    def forward(self, colour: Tensor, depth: Tensor) -> Tensor:
        return self.left(colour) + self.right(depth)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISING)
def test_a_file_in_int8_is_close_to_torch_and_smaller_than_in_float(name: str, tmp_path: Path) -> None:
    images = [torch.randn(4, 3, 16, 16), torch.randn(3, 3, 16, 16)]
    runtime = int8(name, images)
    model = network()
    file = runtime.export(model, tmp_path / f"network{runtime.suffix}", EXAMPLE)
    assert isinstance(file, QuantizedFile)
    assert sum(written.stat().st_size for written in tmp_path.iterdir()) == file.file_bytes
    assert file.file_bytes < 0.7 * 4 * sum(value.numel() for value in model.parameters())
    assert file.likeness is not None
    assert 0.98 < file.likeness < 1
    with torch.no_grad():
        expected = torch.cat([model(inputs) for inputs in images])
    call = runtime.module_of(file.path, model, EXAMPLE)
    found = torch.cat([call(inputs) for inputs in images])
    assert float((found - expected).abs().max()) == pytest.approx(file.largest_difference, rel=1e-3)
    assert 0 < file.largest_difference < 0.15 * float(expected.abs().max())
    timed = runtime.prepare(file.path, EXAMPLE, device="cpu", threads=1)()
    assert isinstance(timed, (list, tuple))
    assert torch.equal(torch.as_tensor(timed[0]), call(EXAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISING)
def test_ranges_are_found_on_the_given_inputs(name: str) -> None:
    """Ranges that are a thousand times too wide leave nothing of the outputs but rounding."""
    model = network()
    with torch.no_grad():
        expected = model(EXAMPLE).flatten()
    likeness = []
    for scale in (1.0, 1000.0):
        run = int8(name, [scale * EXAMPLE]).prepare(model, EXAMPLE, device="cpu", threads=1)
        found = torch.as_tensor(run()[0]).flatten()  # type: ignore[index]
        likeness.append(float(1 - (found - expected).square().sum() / expected.square().sum()))
    assert likeness[0] > 0.95
    assert likeness[1] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISING)
def test_every_layer_in_int8_takes_a_time(name: str) -> None:
    model = network()
    graph = aacp.trace(model, EXAMPLE)
    layers = timed_layers(graph, graph.layers, graph.full)
    pieces = int8(name).prepare_pieces(model, EXAMPLE, layers, device="cpu", threads=1)
    for _ in range(3):
        pieces.run()
        pieces.run_timed()
    recorded = pieces.take_recorded()
    assert [len(seconds) for seconds in recorded] == [3, 3, 3]
    assert all(seconds > 0 for run in recorded for seconds in run)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISING)
def test_inputs_by_name_reach_the_arguments_of_that_name(name: str, tmp_path: Path) -> None:
    model = ByName().eval()
    inputs = {"depth": 100 * torch.randn(2, 1, 8, 8), "colour": torch.randn(2, 3, 8, 8)}
    runtime = int8(name, [inputs])
    file = runtime.export(model, tmp_path / f"network{runtime.suffix}", inputs)
    assert isinstance(file, QuantizedFile)
    assert file.likeness is not None
    assert file.likeness > 0.98


@pytest.mark.parametrize("name", QUANTISING)
def test_a_network_in_double_precision_is_rejected(name: str) -> None:
    runtime = int8(name)
    with pytest.raises(aacp.InvalidOption, match=r"Sequential are float64, but only float32 .* with .float\(\)"):
        runtime.prepare(network().double(), EXAMPLE.double(), device="cpu", threads=1)


@pytest.mark.parametrize("name", QUANTISING)
def test_a_network_without_layers_to_quantise_is_rejected(name: str) -> None:
    runtime = int8(name)
    pool = nn.Sequential(nn.Softmax(dim=1), nn.Flatten())
    with pytest.raises(aacp.InvalidOption, match=r"Use the precision float32"):
        runtime.prepare(pool, EXAMPLE, device="cpu", threads=1)


@pytest.mark.slow
def test_a_conversion_for_executorch_exports_the_network_in_float_and_in_int8_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ExecuTorch's quantiser would export patterns for training as well, in every conversion."""
    runtime = int8("executorch")
    runtime.prepare(network(), EXAMPLE, device="cpu", threads=1)  # the first conversion of a process exports more
    exported = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *given, **how: exported.append(given) or export(*given, **how))
    runtime.prepare(network(), EXAMPLE, device="cpu", threads=1)
    assert len(exported) == 2


@pytest.mark.parametrize("name", QUANTISING)
def test_calibration_without_inputs_is_rejected(name: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"no inputs to find the ranges .* or use the precision float32"):
        registry.find_runtime(name).quantized([])


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("onnxruntime", "onnxruntime", "onnx"),
        ("openvino", "nncf", "openvino-int8"),
        ("executorch", "torchao", "executorch"),
    ],
)
def test_a_missing_quantiser_is_named_with_the_extra_that_installs_it(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = int8(name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        aacp.MissingPackage, match=rf"{package} is not installed. Install it with: pip install 'aacp\[{extra}\]'"
    ):
        runtime.require_installed()


def test_nncf_is_imported_without_its_reports_and_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name stands for NNCF: what it prints, and what it does to the loggers, is not seen outside."""
    seen: list[str | None] = []

    def imported(name: str, install: str) -> str:
        seen.append(os.environ.get("NNCF_CI"))
        print("a bar")
        logging.setLoggerClass(type("Other", (logging.Logger,), {}))
        return name

    monkeypatch.delenv("NNCF_CI", raising=False)
    monkeypatch.setattr(nncf_int8, "require_package", imported)
    assert nncf_int8.import_nncf() == "nncf"
    assert seen == ["1"]
    assert "NNCF_CI" not in os.environ
    assert logging.getLoggerClass() is logging.Logger


# -- what the runtimes share ------------------------------------------------------------------------------------------


class Rounding(Int8):
    """A runtime whose files are empty, and whose networks have weights that are rounded to a step."""

    name = "rounding"
    version = "1.0"

    def __init__(
        self,
        step: float,
        images: list[Tensor] | None = None,
        finished: Callable[[nn.Module], nn.Module] = lambda module: module,
    ) -> None:
        super().__init__(images)
        self.step = step
        self.finished = finished

    def prepare_file(self, path: Path, example: Any, threads: int) -> RunFile:
        raise NotImplementedError

    def write(self, network: nn.Module, path: Path, example: Any) -> None:
        path.write_bytes(b"123")
        path.with_suffix(".weights").write_bytes(b"4567")

    def module_of(self, path: Path, original: nn.Module, example: Any) -> nn.Module:
        twin = copy_module(original)
        with torch.no_grad():
            for value in twin.parameters():
                value.copy_((value / self.step).round() * self.step)
        return self.finished(twin)


class Restless(nn.Module):
    """A network whose outputs are others in every call."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(x) + self.calls


def test_likeness_and_difference_are_those_of_the_calibration_inputs(tmp_path: Path) -> None:
    model = nn.Linear(1, 2, bias=False)
    nn.init.constant_(model.weight, 0.9)
    images = [torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0], [-3.0]])]
    file = Rounding(1.0, images).export(model, tmp_path / "network.int8", images[0])
    assert file.largest_difference == pytest.approx(0.3)  # 3 * (1 - 0.9)
    assert file.likeness == pytest.approx(1 - (0.1 / 0.9) ** 2)
    assert file.file_bytes == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["network.int8", "network.weights"]


def test_constant_outputs_have_no_likeness(tmp_path: Path) -> None:
    model = nn.Linear(1, 2)
    nn.init.zeros_(model.weight)
    inputs = torch.randn(4, 1)
    file = Rounding(1e-3).export(model, tmp_path / "network.int8", inputs)
    assert file.likeness is None
    assert math.isfinite(file.largest_difference)


def test_a_file_whose_outputs_change_from_call_to_call_is_rejected_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(aacp.ExportFailed, match=r"network.int8 returns different outputs .* Use the precision float32"):
        Rounding(1e-3, finished=Restless).export(nn.Linear(1, 2), tmp_path / "network.int8", torch.randn(4, 1))
    assert not list(tmp_path.iterdir())


def test_calibration_inputs_are_divided_into_batches_of_the_example() -> None:
    images = [torch.arange(3.0)[:, None], torch.arange(3.0, 5.0)[:, None]]
    found = [tensor.flatten().tolist() for (tensor,) in Calibration(images).tensors(nn.Identity(), torch.zeros(2, 1))]
    assert found == [[0, 1], [2, 2], [3, 4]]
    (only,) = Calibration(None).tensors(nn.Identity(), torch.ones(2, 1))
    assert only[0].flatten().tolist() == [1, 1]
