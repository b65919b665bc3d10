"""A user's runtime with its own clock is measured, checked and limited without a change to the library."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.latency.runtimes import registry
from glue.subjects import Tiny
from latency.simulator import (
    SECONDS_PER_BATCH,
    SECONDS_PER_MAC,
    SIMULATOR,
    FileSimulator,
    Simulator,
    count_macs,
)

pytestmark = pytest.mark.slow

EXAMPLE = torch.randn(1, 1, 8, 8)


@pytest.fixture(autouse=True)
def _no_runtime_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_runtimes", {})


@pytest.fixture
def model() -> nn.Module:
    return aacp.build_model("digits_resnet").eval()


def seconds(network: nn.Module, batch: int = 1) -> float:
    return SECONDS_PER_BATCH + SECONDS_PER_MAC * count_macs(network, torch.cat([EXAMPLE] * batch))


def test_its_table_predicts_what_its_clock_shows(model: nn.Module) -> None:
    graph = aacp.trace(model, EXAMPLE)
    space = aacp.SearchSpace(graph, 1 / 4)
    where = aacp.Deployment(Simulator(), "npu", batch=2, threads=1)
    table = aacp.measure_latency(model, graph, space, where, example=EXAMPLE)
    assert (table.conditions.runtime, table.conditions.version, table.conditions.device) == ("simulator", "1.0", "npu")
    assert table.reference == pytest.approx(seconds(model, batch=2))
    assert table.noise == pytest.approx(0, abs=1e-9)
    assert table.error.median < 0.03
    generator = np.random.default_rng(5)
    for structure in [space.sample(generator) for _ in range(5)]:
        true = seconds(aacp.shrink(model, graph, structure, example=EXAMPLE), batch=2)
        assert float(table.cost(graph)(np.asarray(structure))) == pytest.approx(true, rel=0.1)


def test_a_check_shows_the_ratio_of_its_clock(model: nn.Module) -> None:
    graph = aacp.trace(model, EXAMPLE)
    half = aacp.Structure(max(1, group.width // 2) for group in graph.free)
    where = aacp.Deployment(Simulator(), "npu", batch=3, threads=1)
    (checked,) = aacp.check_latency(model, graph, [half], where, example=EXAMPLE, turns=3)
    true = seconds(aacp.shrink(model, graph, half, example=EXAMPLE), batch=3)
    assert checked.seconds.median == pytest.approx(true)
    assert checked.ratio.upper == pytest.approx(true / seconds(model, batch=3))
    assert checked.is_faster


def test_a_limit_is_met_on_its_clock_and_its_file_is_delivered(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model = Tiny().eval()
    runtime = FileSimulator()
    data = aacp.load_data("digits")
    plan = aacp.Plan(
        evaluations=12,
        calibration_images=64,
        recipe=None,
        reconstruction=None,
        deployment=aacp.Deployment(runtime, "npu", threads=1),
    )
    found = aacp.prune(model, data, {"latency": 0.3}, tmp_path, plan=plan)
    assert seconds(found.network) <= 0.7 * seconds(model)
    (limit,) = found.choice.limits
    assert limit.reached == pytest.approx(seconds(found.network), rel=1e-6)
    assert json.loads((tmp_path / "run.json").read_text())["deployment"]["runtime"] == runtime.name
    assert found.exported is not None
    last = found.exported.timings[-1]
    assert (last.runtime, last.device) == (f"{runtime.name} 1.0", "npu")
    assert last.after.seconds == pytest.approx(seconds(found.network))
    assert [files.file for files in found.exported.others] == ["pruned.macs"]
    assert int((found.training.path / "pruned.macs").read_text()) == count_macs(found.network, EXAMPLE)
    assert "pruned.macs" in (tmp_path / "report.html").read_text()


def test_the_command_line_takes_it_by_module_and_name(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    sys.modules.setdefault("latency.simulator", sys.modules[Simulator.__module__])
    options = ["--device", "npu", "--threads", "1", "--input", "1x1x8x8", "--structures", "8", "--out", str(file)]
    found = CliRunner().invoke(main, ["measure", "digits_resnet", "--runtime", "latency.simulator:SIMULATOR", *options])
    assert found.exit_code == 0, found.output
    assert aacp.LatencyTable.load(file).conditions.runtime == "simulator"


def test_a_registered_runtime_is_found_by_name_and_replaces_an_earlier_one() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"no runtime 'simulator'. Choose from .*onnxruntime, .*torch.*, or"):
        aacp.Deployment("simulator")
    for runtime in (Simulator(), Simulator()):
        aacp.register_runtime(runtime)
        assert aacp.Deployment("simulator", "npu").resolved_runtime is runtime


def test_a_name_with_a_colon_is_imported_once_whether_it_is_an_object_or_a_class() -> None:
    assert aacp.Deployment("latency.simulator:SIMULATOR", "npu").resolved_runtime is SIMULATOR
    first = aacp.Deployment("latency.simulator:Simulator", "npu")
    assert first.resolved_runtime is aacp.Deployment("latency.simulator:Simulator", "npu", batch=2).resolved_runtime
    assert first.to_json()["runtime"] == "latency.simulator:Simulator"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("latency.simulator:NOTHING", "There is no latency.simulator:NOTHING"),
        ("latency.simulator:count_macs", "latency.simulator:count_macs is not a runtime"),
        ("no_such_module:X", "no Python module 'no_such_module'"),
    ],
)
def test_what_is_not_a_runtime_is_rejected(name: str, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        aacp.Deployment(name, "npu")


def test_a_runtime_that_cannot_be_supported_is_rejected_with_the_reason_and_what_to_do() -> None:
    with pytest.raises(
        aacp.InvalidOption, match=r"^The runtime litert is not supported: .*depends on torch<2.13.0\). Use the runtime"
    ):
        aacp.Deployment("litert")

    class Own(Simulator):
        name = "litert"

    aacp.register_runtime(Own())
    assert isinstance(aacp.Deployment("litert", "npu").resolved_runtime, Own)


def test_a_table_of_another_version_of_the_runtime_is_rejected(model: nn.Module, tmp_path: Path) -> None:
    class Newer(Simulator):
        version = "2.0"

    graph = aacp.trace(model, EXAMPLE)
    file = tmp_path / "table.json"
    aacp.measure_latency(
        model, graph, aacp.SearchSpace(graph, 1 / 4), aacp.Deployment(Simulator(), "npu"), example=EXAMPLE, file=file
    )
    now = aacp.conditions_here(model, aacp.Deployment(Newer(), "npu"))
    with pytest.raises(
        aacp.DeviceMismatch, match=r"measured with version '1.0', but version '2.0' is requested. Request what it was"
    ):
        aacp.LatencyTable.load(file, now)


def test_what_cannot_be_registered_is_rejected() -> None:
    class Torch(Simulator):
        name = "torch"

    with pytest.raises(aacp.InvalidOption, match="'torch' is the name of a built-in runtime"):
        aacp.register_runtime(Torch())
    with pytest.raises(aacp.InvalidOption, match=r"is not a runtime. Pass an object of a subclass of aacp.Runtime"):
        aacp.register_runtime("torch")  # type: ignore[arg-type]


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    class Incomplete(Simulator):
        packages = ("no_such_package",)
        install = "pip install 'mine[device]'"

    assert not Incomplete().is_installed
    with pytest.raises(aacp.MissingPackage, match=r"no_such_package is not installed. .* pip install 'mine\[device\]'"):
        aacp.conditions_here(nn.Conv2d(1, 1, 1), aacp.Deployment(Incomplete(), "npu"))
