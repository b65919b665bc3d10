"""Measurements by a worker: the table is of its machine, the log stays here, and nothing is timed here."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.errors import InvalidOption, WorkerFailed
from aacp.latency.remote import one_worker
from aacp.runs.provenance import machine
from aacp.version import __version__
from aacp.workers.pool import WorkerLost
from aacp.workers.ray import RayWorker, WorkerRequest, rebuilt
from latency.device_process import BOARD
from latency.simulator import FileSimulator, Simulator
from plain_network import plain_network

EXAMPLE = torch.zeros(1, 1, 8, 8)
TIMED = 8 + 5  # structures of a table
EFFORT = {"example": EXAMPLE, "structures": 8, "held_out": 5, "seconds_per_structure": 1e-4}


class OnlyThere:
    """A device that this process has while it plays the worker."""

    is_there = False

    def require_device(self, device: str) -> None:
        if not self.is_there:
            raise InvalidOption("There is no such device here. Use another.")

    def prepare(self, *arguments: Any, **options: Any) -> Any:
        assert self.is_there, "a network is run here"
        return super().prepare(*arguments, **options)  # type: ignore[misc]


class Files(OnlyThere, FileSimulator):
    pass


class Modules(OnlyThere, Simulator):
    pass


class FakeEngine:
    """An engine whose worker is a part of this process, on a machine of another name."""

    made: list[FakeEngine]
    place: dict[str, Any]  # of the worker, for `there`
    lost_after = 10**6  # structures

    def __init__(self, request: WorkerRequest, make_estimate: Any, *, uses_gpu: bool, cpus: int) -> None:
        self.request, self.uses_gpu, self.cpus = request, uses_gpu, cpus
        self.worker = RayWorker(make_estimate)
        self.timed: list[aacp.Structure] = []
        self.events: list[str] = []
        self.made.append(self)

    def start(self) -> tuple[RayWorker, Any]:
        self.events.append("started")
        return self.worker, lambda: self.worker.prepare(__version__)

    def ask(self, worker: RayWorker, name: str) -> Any:
        return lambda: worker.ask(name)

    def submit(self, worker: RayWorker, structure: aacp.Structure) -> Any:
        self.timed.append(structure)
        return lambda: worker.score(list(structure))

    def wait(self, tickets: list[Any], seconds: float) -> list[Any]:
        return tickets

    def result(self, ticket: Any) -> Any:
        if len(self.timed) > self.lost_after:
            raise WorkerLost("the node is gone")
        with there(**self.place):
            answer = ticket()
        if isinstance(answer, tuple):
            raise rebuilt(*answer)
        return answer

    def stop(self, worker: RayWorker) -> None:
        self.events.append("stopped")

    def close(self) -> None:
        self.events.append("closed")


@contextmanager
def there(name: str = BOARD, has_device: bool = True) -> Iterator[None]:
    """What runs inside runs on the other machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aacp.latency.deployment.machine", lambda: name)
        patch.setattr(OnlyThere, "is_there", has_device)
        yield


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    monkeypatch.setattr("aacp.latency.remote.RayEngine", FakeEngine)
    monkeypatch.setattr(FakeEngine, "made", [], raising=False)
    monkeypatch.setattr(FakeEngine, "place", {}, raising=False)
    return FakeEngine.made


@cache
def traced() -> tuple[nn.Module, aacp.ChannelGraph]:
    model = plain_network()
    return model, aacp.trace(model, EXAMPLE)


def measured(runtime: aacp.Runtime, file: Path | None = None, **options: Any) -> aacp.LatencyTable:
    model, graph = traced()
    where = aacp.Deployment(runtime, "npu", threads=3)
    space = aacp.SearchSpace(graph, 4)
    return aacp.measure_latency(model, graph, space, where, file=file, **{"workers": 1, **EFFORT, **options})


def test_the_table_is_of_the_machine_of_the_worker_and_nothing_is_timed_here(engines, tmp_path: Path) -> None:
    table = measured(Files(), tmp_path / "table.json")
    (engine,) = engines
    assert table.conditions.machine == BOARD
    assert [tuple(structure) for structure in engine.timed] == [
        run.structure for run in (*table.measured, *table.held_out)
    ]
    assert len(engine.timed) == TIMED
    assert (engine.request, engine.uses_gpu, engine.cpus) == (WorkerRequest(count=1), False, 3)
    assert engine.events == ["started", "stopped", "closed"]
    with there():
        assert measured(Files(), workers=None).measured == table.measured  # the times of a measurement on that machine


@pytest.mark.slow
def test_a_search_here_takes_the_table_and_leaves_the_check_to_that_machine(engines, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    runtime = FileSimulator()
    measured(runtime, file)
    assert aacp.LatencyTable.load(file).elsewhere
    (limit,) = found(runtime, file).choice.limits
    assert (limit.cost, limit.measured) == ("latency", False)


@pytest.mark.slow
def test_without_files_to_check_a_table_of_another_machine_is_rejected_here(engines, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    runtime = Simulator()
    assert not measured(runtime, file).elsewhere
    words = f"measured with machine '{BOARD}', but .* is requested. .*, or use the table where it was measured"
    with pytest.raises(aacp.DeviceMismatch, match=words):
        found(runtime, file)


def found(runtime: aacp.Runtime, table: Path) -> aacp.Found:
    """A search here with a table."""
    part = torch.utils.data.TensorDataset(torch.randn(32, 1, 8, 8), torch.arange(32) % 10)
    plan = aacp.Plan(
        evaluations=4, pruning_step=4, recipe=None, calibration_images=16, latency_table=table, reconstruction=None,
        deployment=aacp.Deployment(runtime, "npu", threads=3),
    )  # fmt: skip
    data = aacp.Data(part, part, part, name="random images")
    return aacp.find(plain_network(), data, {"latency": 0.2}, plan=plan, device="cpu")


def test_a_worker_on_this_machine_makes_a_table_of_this_machine(engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FakeEngine.place, "name", machine())
    assert not measured(FileSimulator()).elsewhere


def test_what_was_measured_before_a_worker_was_lost_is_kept(engines, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "table.json"
    monkeypatch.setattr(FakeEngine, "lost_after", 5)
    with pytest.raises(WorkerFailed, match=r"has ended: the node is gone\. See why, then call again"):
        measured(Files(), file)
    assert engines[0].events == ["started", "stopped", "closed"]
    assert not file.exists()
    monkeypatch.setattr(FakeEngine, "lost_after", TIMED)
    table = measured(Files(), file)
    assert [*engines[0].timed[:5], *engines[1].timed] == [
        aacp.Structure(run.structure) for run in (*table.measured, *table.held_out)
    ]


def test_a_device_that_the_worker_lacks_is_named(engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FakeEngine.place, "has_device", False)
    with pytest.raises(InvalidOption, match="There is no such device here"):
        measured(Files())
    assert engines[0].events == ["started", "stopped", "closed"]


@pytest.mark.parametrize("given", [2, "3", "auto"])
def test_several_workers_are_rejected(given: int | str) -> None:
    words = f"A latency is that of one machine, so workers={given!r} cannot share a measurement. Give 1, or the address"
    with pytest.raises(InvalidOption, match=re.escape(words)):
        one_worker(given)


def test_one_worker_of_a_cluster_that_answers_is_asked_for() -> None:
    assert one_worker("1") == WorkerRequest(count=1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        assert one_worker(address) == WorkerRequest(count=1, address=address)
    with pytest.raises(InvalidOption, match="Ray does not answer"):
        one_worker("ray://127.0.0.1:1")
