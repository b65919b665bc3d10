"""One suite for every runtime: those of the library, and a user-defined one."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pytest.mark import ParameterSet
from torch import nn

import aacp
from aacp.latency.layers import timed_layers
from aacp.latency.runtimes import registry
from aacp.latency.runtimes.torch import torch_threads
from latency.simulator import FileSimulator, Simulator

pytestmark = pytest.mark.slow

EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SIMULATORS = ("simulator", "file_simulator")
FLOAT32_ONLY = ("ncnn", "openvino")  # whatever the types of the weights


def named(name: str) -> ParameterSet:
    """A runtime as a parameter; compiling takes too long for the gate."""
    return pytest.param(name, marks=[pytest.mark.extensive] if name == "torch-compile" else [])


@pytest.fixture(params=[*map(named, registry.BUILT_IN), *SIMULATORS])
def where(request: pytest.FixtureRequest) -> Iterator[aacp.Deployment]:
    before = dict(registry._runtimes)
    registry._runtimes.clear()  # what earlier tests registered
    aacp.register_runtime(Simulator())
    aacp.register_runtime(FileSimulator())
    assert set(registry.runtime_names()) == {*registry.BUILT_IN, *SIMULATORS}
    runtime = registry.find_runtime(request.param)
    device = runtime.devices[0]
    if not runtime.is_installed:
        pytest.skip(f"{request.param} is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"{request.param} needs a GPU")
    yield aacp.Deployment(request.param, device, batch=runtime.largest_batch or 2, threads=1)
    registry._runtimes.clear()
    registry._runtimes.update(before)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(32 * 16, 4)
    )


def assert_same(result: object, expected: torch.Tensor) -> None:
    """Compare what a prepared call returned with the only output of a module."""
    found = torch.as_tensor(result[0] if isinstance(result, (list, tuple)) else result).cpu()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


class EveryKind(nn.Module):
    """Convolutions of all kinds with norms, a sum of two branches, pools and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 32, 3, stride=2, padding=1)
        self.linear = nn.Linear(32, 4)
        for norm in (self.norm, self.depthwise_norm):  # statistics as after a training
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)).relu()
        inner = self.depthwise_norm(self.depthwise(x)).clamp(0, 6)
        x = x + self.pointwise(inner)
        return self.linear(self.last(x).relu().mean((2, 3)))


class TwoInputs(nn.Module):
    """A network of two images that are added after a convolution of each."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 8, 3)
        self.right = nn.Conv2d(1, 8, 3)

    def forward(self, colour: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        return self.left(colour) + self.right(depth).relu()


def test_a_prepared_network_runs_the_batch_that_it_was_given(where: aacp.Deployment) -> None:
    model = network().eval()
    batch = torch.cat([EXAMPLE] * where.batch)
    expected = model(batch).detach()
    call = where.resolved_runtime.prepare(model, batch, device=where.device, threads=1)
    before = where.resolved_runtime.clock()
    result = call()
    assert where.resolved_runtime.clock() > before
    if result is not None:
        assert_same(result, expected)


def test_the_networks_that_are_timed_are_not_changed(where: aacp.Deployment) -> None:
    model = network()
    states = {name: value.clone() for name, value in model.state_dict().items()}
    aacp.time_networks({"a": model}, EXAMPLE, where, turns=2)
    assert model.training
    assert all(torch.equal(states[name], value) for name, value in model.state_dict().items())


def test_every_piece_of_every_timed_run_takes_a_time(where: aacp.Deployment) -> None:
    model = network()
    graph = aacp.trace(model, EXAMPLE)
    structure = aacp.Structure([8, 24])
    pieces = where.resolved_runtime.prepare_pieces(
        aacp.shrink(model, graph, structure).eval(),
        EXAMPLE,
        timed_layers(graph, graph.layers, structure),
        device=where.device,
        threads=1,
    )
    for count in (3, 2):
        for _ in range(count):
            pieces.run()
            pieces.run_timed()
        recorded = pieces.take_recorded()
        assert [len(seconds) for seconds in recorded] == [3] * count
        assert all(seconds > 0 for run in recorded for seconds in run)
    assert pieces.take_recorded() == []


def test_a_table_is_measured_saved_and_resumed(where: aacp.Deployment, tmp_path: Path) -> None:
    model = network()
    graph = aacp.trace(model, EXAMPLE)
    threads = torch.get_num_threads()
    space = aacp.SearchSpace(graph, 1 / 4)

    def measured() -> aacp.LatencyTable:
        return aacp.measure_latency(
            model, graph, space, where, example=EXAMPLE, file=tmp_path / "table.json",
            structures=4, held_out=2, seconds_per_structure=0.01,
        )  # fmt: skip

    table = measured()
    assert torch.get_num_threads() == threads
    assert model.training
    assert table.conditions == aacp.conditions_here(model, where)
    assert (table.conditions.runtime, table.conditions.batch) == (where.runtime, where.batch)
    assert [piece.layer for piece in table.pieces] == [layer.name for layer in graph.layers]
    assert all(second > 0 for run in table.measured for second in run.pieces)
    assert float(table.cost(graph)(np.asarray(graph.full))) > 0
    loaded = aacp.LatencyTable.load(tmp_path / "table.json", table.conditions)
    assert json.dumps(loaded.to_json()) == json.dumps(table.to_json()) == json.dumps(measured().to_json())


def test_structures_are_checked_end_to_end(where: aacp.Deployment) -> None:
    model = network()
    graph = aacp.trace(model, EXAMPLE)
    small = aacp.Structure([4, 8])
    found = aacp.check_latency(model, graph, [small, graph.full], where, example=EXAMPLE, turns=5)
    assert [checked.structure for checked in found] == [small, graph.full]
    assert all(checked.seconds.median > 0 for checked in found)
    assert all(checked.ratio.lower <= checked.ratio.median <= checked.ratio.upper for checked in found)


def test_a_runtime_with_files_times_the_file_that_it_exports(where: aacp.Deployment, tmp_path: Path) -> None:
    runtime, model = where.resolved_runtime, network().eval()
    if runtime.suffix is None:
        with pytest.raises(aacp.InvalidOption, match="has no file format"):
            runtime.export(model, tmp_path / "network", EXAMPLE)
        return
    file = runtime.export(model, tmp_path / f"network{runtime.suffix}", torch.cat([EXAMPLE] * where.batch))
    assert sum(written.stat().st_size for written in tmp_path.iterdir()) == file.file_bytes > 0
    timed = aacp.time_networks({"module": model, "file": str(file.path)}, EXAMPLE, where, turns=3)
    assert [len(timing.seconds) for timing in timed.values()] == [3, 3]


def test_the_conditions_name_what_a_latency_depends_on(where: aacp.Deployment) -> None:
    found = asdict(aacp.conditions_here(network().double(), where))
    assert all(found.values())
    precision = "float32" if where.runtime in FLOAT32_ONLY else "float64"
    assert (found["runtime"], found["precision"]) == (where.runtime, precision)
    assert where.device != "cpu" or found["device"] == "cpu"
    again = aacp.Deployment(**json.loads(json.dumps(where.to_json())))
    assert again == where


def test_a_device_of_another_kind_is_rejected(where: aacp.Deployment) -> None:
    with pytest.raises(aacp.InvalidOption, match=rf"{where.runtime} has no device 'toaster:1'. Use {where.device}"):
        aacp.Deployment(where.runtime, "toaster:1")


# -- the runtimes that are real ---------------------------------------------------------------------------------------


@pytest.fixture
def real(where: aacp.Deployment) -> aacp.Deployment:
    if where.runtime in SIMULATORS:
        pytest.skip("a simulator computes nothing")
    return where


def delivered(where: aacp.Deployment, model: nn.Module, example: Any, folder: Path) -> nn.Module | Path:
    """What is deployed: the file of a runtime, or the module itself for a runtime without files."""
    runtime = where.resolved_runtime
    if runtime.suffix is None:
        return model
    file = runtime.export(model, folder / f"network{runtime.suffix}", example)
    assert file.largest_difference is not None
    assert file.largest_difference < 1e-4
    return file.path


def test_every_kind_of_layer_computes_what_torch_does(real: aacp.Deployment, tmp_path: Path) -> None:
    model = EveryKind().eval()
    batch = torch.randn(real.batch, 3, 16, 16)
    expected = model(batch)
    network = delivered(real, model, batch, tmp_path)
    assert_same(real.resolved_runtime.prepare(network, batch, device=real.device, threads=1)(), expected)


@pytest.mark.parametrize("kind", [tuple, dict])
def test_several_inputs_keep_their_order(real: aacp.Deployment, tmp_path: Path, kind: type) -> None:
    model = TwoInputs().eval()
    colour = torch.randn(real.batch, 3, 8, 8)
    depth = torch.randn(real.batch, 1, 8, 8)
    example = (colour, depth) if kind is tuple else {"colour": colour, "depth": depth}
    expected = model(colour, depth)
    network = delivered(real, model, example, tmp_path)
    assert_same(real.resolved_runtime.prepare(network, example, device=real.device, threads=1)(), expected)


def test_inputs_by_name_may_come_in_another_order(real: aacp.Deployment) -> None:
    runtime, model = real.resolved_runtime, TwoInputs().eval()
    example = {"depth": torch.randn(real.batch, 1, 8, 8), "colour": torch.randn(real.batch, 3, 8, 8)}
    expected = model(**example)
    layers = [aacp.TimedLayer(name, True, (6, 6), 8, macs) for name, macs in (("left", 27), ("right", 9))]
    assert_same(runtime.prepare(model, example, device=real.device, threads=1)(), expected)
    assert_same(runtime.prepare_pieces(model, example, layers, device=real.device, threads=1).run(), expected)


def test_a_file_with_other_inputs_than_the_example_is_rejected(real: aacp.Deployment, tmp_path: Path) -> None:
    if real.resolved_runtime.suffix is None:
        pytest.skip("it has no files")
    file = delivered(real, network().eval(), EXAMPLE, tmp_path)
    with pytest.raises(aacp.InvalidOption, match=r"takes 1 input.*, but the example holds 2 tensors\. Give an example"):
        real.resolved_runtime.prepare(file, (EXAMPLE, EXAMPLE), device=real.device, threads=1)


def test_a_file_runs_any_batch_or_says_which_one_it_takes(real: aacp.Deployment, tmp_path: Path) -> None:
    runtime = real.resolved_runtime
    if runtime.suffix is None:
        pytest.skip("it has no files")
    model = network().eval()
    file = delivered(real, model, EXAMPLE, tmp_path)
    batch = torch.cat([EXAMPLE, EXAMPLE])
    if real.runtime == "onnxruntime":
        assert_same(runtime.prepare(file, batch, device=real.device, threads=1)(), model(batch))
        return
    with pytest.raises(
        aacp.InvalidOption, match=r"takes an input of 1x3x8x8, but the example has 2x3x8x8 there\. Export"
    ):
        runtime.prepare(file, batch, device=real.device, threads=1)


def test_a_damaged_file_is_rejected_by_name(real: aacp.Deployment, tmp_path: Path) -> None:
    runtime = real.resolved_runtime
    if runtime.suffix is None:
        pytest.skip("it has no files")
    delivered(real, network().eval(), EXAMPLE, tmp_path)
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        for content in (whole[: len(whole) // 2], b""):
            file.write_bytes(content)
            with pytest.raises(
                aacp.ExportFailed, match=r"cannot open network\..*(\. Export \w+ network|export it again)"
            ):
                runtime.prepare(tmp_path / f"network{runtime.suffix}", EXAMPLE, device=real.device, threads=1)
        file.write_bytes(whole)


class Costly(nn.Module):
    """A network with one expensive layer among cheap ones."""

    def __init__(self, expensive: int) -> None:
        super().__init__()
        widths = [64 if expensive in (place, place - 1) else 4 for place in range(5)]
        self.layers = nn.Sequential(*[nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise([3, *widths[1:]])])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize("expensive", [1, 2, 3])
def test_the_expensive_layer_takes_most_of_the_time(real: aacp.Deployment, expensive: int) -> None:
    model = Costly(expensive).eval()
    example = torch.randn(1, 3, 48, 48)
    graph = aacp.trace(model, example)
    pieces = real.resolved_runtime.prepare_pieces(
        model, example, timed_layers(graph, graph.layers, graph.full), device=real.device, threads=1
    )
    seconds = []
    with torch_threads(1):  # on a busy machine, two threads wait for each other in every layer
        for _ in range(15):
            start = time.perf_counter()
            pieces.run()
            seconds.append(time.perf_counter() - start)
            pieces.run_timed()
    found = np.min(pieces.take_recorded(), axis=0)  # other programs only add to the time of a layer
    assert int(found.argmax()) == expensive
    assert found[expensive] > 0.4 * found.sum()
    if real.device == "cpu":  # the launches of a GPU are most of its time
        assert 0.2 * min(seconds) < found.sum() < 3 * min(seconds)


def test_no_more_threads_run_than_were_requested(real: aacp.Deployment) -> None:
    model = nn.Sequential(*[nn.Conv2d(32, 32, 3, padding=1) for _ in range(4)]).eval()
    with torch_threads(1):
        call = real.resolved_runtime.prepare(model, torch.randn(1, 32, 96, 96), device=real.device, threads=1)
        call()
        start = time.perf_counter()
        processor = time.process_time()
        for _ in range(20):
            call()
        assert time.process_time() - processor < 1.3 * (time.perf_counter() - start)


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = registry.find_runtime(name)
    if not runtime.packages:
        pytest.skip("it needs no package besides torch")
    package = runtime.packages[0]
    for each in runtime.packages:
        monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(aacp.MissingPackage, match=rf"{package} is not installed. Install it with: pip install 'aacp\["):
        runtime.require_installed()
    assert not runtime.is_installed


def test_no_runtime_is_imported_with_the_package() -> None:
    packages = [package for name in registry.BUILT_IN for package in registry.find_runtime(name).packages]
    code = f"import sys, aacp; aacp.Deployment('torch'); print([name for name in {packages} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
