"""One suite for every runtime: those of the library, and a user-defined one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.latency.layers import timed_layers
from aacp.latency.runtimes import registry
from latency.simulator import FileSimulator, Simulator

pytestmark = pytest.mark.slow

EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
DEVICE = {"simulator": "npu", "file_simulator": "npu"}


@pytest.fixture(params=["onnxruntime", "torch", "simulator", "file_simulator"])
def where(request: pytest.FixtureRequest) -> Iterator[aacp.Deployment]:
    before = dict(registry._found)
    aacp.register_runtime(Simulator())
    aacp.register_runtime(FileSimulator())
    assert set(registry.runtime_names()) == {"onnxruntime", "torch", "simulator", "file_simulator"}
    runtime = registry.find_runtime(request.param)
    if not runtime.is_installed:
        pytest.skip(f"{request.param} is not installed")
    yield aacp.Deployment(request.param, DEVICE.get(request.param, "cpu"), batch=2, threads=1)
    registry._found.clear()
    registry._found.update(before)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(32 * 16, 4)
    )


def test_a_prepared_network_runs_the_batch_that_it_was_given(where: aacp.Deployment) -> None:
    model = network().eval()
    batch = torch.cat([EXAMPLE, EXAMPLE])
    expected = model(batch).detach()
    call = where.resolved_runtime.prepare(model, batch, device=where.device, threads=1)
    before = where.resolved_runtime.clock()
    result = call()
    assert where.resolved_runtime.clock() > before
    if result is not None:
        found = torch.as_tensor(result[0] if isinstance(result, list) else result)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


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
    assert (table.conditions.runtime, table.conditions.batch) == (where.runtime, 2)
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
    file = runtime.export(model, tmp_path / f"network{runtime.suffix}", EXAMPLE)
    assert file.path.stat().st_size == file.file_bytes > 0
    timed = aacp.time_networks({"module": model, "file": str(file.path)}, EXAMPLE, where, turns=3)
    assert [len(timing.seconds) for timing in timed.values()] == [3, 3]


def test_the_conditions_name_what_a_latency_depends_on(where: aacp.Deployment) -> None:
    found = asdict(aacp.conditions_here(network().double(), where))
    assert all(found.values())
    assert (found["runtime"], found["device"], found["precision"]) == (where.runtime, where.device, "float64")
    again = aacp.Deployment(**json.loads(json.dumps(where.to_json())))
    assert again == where


def test_a_device_of_another_kind_is_rejected(where: aacp.Deployment) -> None:
    with pytest.raises(aacp.InvalidOption, match=rf"{where.runtime} has no device 'toaster:1'. Use {where.device}"):
        aacp.Deployment(where.runtime, "toaster:1")
