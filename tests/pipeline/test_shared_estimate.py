"""Estimates on workers: who gets what, that the result is that of one process, and when workers end."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.estimate.psae import PSAE
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.runs.files import STRUCTURE
from aacp.user.progress import show_progress
from aacp.workers.ray import WorkerRequest
from plain_network import plain_network
from workers.simulated import SimulatedEngine

PLAN = aacp.Plan(evaluations=12, pruning_step=1, recipe=None, reconstruction=None, calibration_images=32, export=False)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[SimulatedEngine]:
    """The engines that are made in place of Ray's, with simulated workers in this process."""
    made: list[SimulatedEngine] = []

    def engine(request: WorkerRequest, make_estimate: Any, *, uses_gpu: bool) -> SimulatedEngine:
        assert not uses_gpu
        threads = torch.get_num_threads()
        made.append(SimulatedEngine(request.count or 7, make_estimate()))
        torch.set_num_threads(threads)  # a worker sets those of its own process
        return made[-1]

    monkeypatch.setattr("aacp.pipeline.shared_estimate.RayEngine", engine)
    return made


@pytest.fixture
def model() -> nn.Module:
    return plain_network()


@pytest.fixture(scope="module")
def data() -> aacp.Data:
    generator = torch.Generator().manual_seed(0)
    part = (torch.randn(64, 1, 8, 8, generator=generator), torch.randint(10, (64,), generator=generator))
    return aacp.Data(*[torch.utils.data.TensorDataset(*part)] * 3, name="random images")


def plan(**changes: Any) -> aacp.Plan:
    return replace(PLAN, **changes)


@pytest.mark.slow
def test_workers_give_the_history_of_one_process_with_as_many_proposals(model, data, engines) -> None:
    alone = aacp.find(model, data, {"macs": 0.5}, plan=plan(proposals=8))
    assert not engines
    for workers in (1, 3, "auto"):
        found = aacp.find(model, data, {"macs": 0.5}, plan=plan(workers=workers))
        assert [candidate.to_json() for candidate in found.history] == [each.to_json() for each in alone.history]
    assert [engine.count for engine in engines] == [1, 3, 7]
    assert [len(engine.submitted) for engine in engines] == [len(alone.history)] * 3
    assert not any(engine.alive for engine in engines)


@pytest.mark.slow
def test_with_workers_eight_structures_are_proposed_at_once(model, data, engines, tmp_path: Path) -> None:
    aacp.find(model, data, {"macs": 0.5}, tmp_path, plan=plan(workers=1))
    assert json.loads((tmp_path / "run.json").read_text())["proposals"] == 8
    assert json.loads((tmp_path / "search.json").read_text())["settings"]["batch"] == 8


@pytest.fixture(scope="module")
def deeper() -> nn.Module:
    """A network with more structures within each budget than a search evaluates."""
    torch.manual_seed(0)
    pairs = ((1, 8), (8, 12), (12, 16))
    layers = [nn.Sequential(nn.Conv2d(*pair, 3), nn.BatchNorm2d(pair[1]), nn.ReLU()) for pair in pairs]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()


BUDGETS = ({"macs": 0.3}, {"macs": 0.5})


def results(folder: Path) -> dict[str, str]:
    """What a sweep has found, by file."""
    files = ("front.json", *(f"macs-{rate}/{name}" for rate in (0.3, 0.5) for name in ("history.jsonl", STRUCTURE)))
    return {name: (folder / name).read_text() for name in files}


@pytest.fixture(scope="module")
def swept(deeper, data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The results of a sweep in one process, with as many proposals as workers get."""
    folder = tmp_path_factory.mktemp("alone")
    aacp.sweep(deeper, data, BUDGETS, folder, plan=plan(proposals=8))
    return results(folder)


@pytest.mark.slow
def test_a_sweep_shares_its_workers_and_has_the_results_of_one_process(
    deeper, data, swept, engines, tmp_path: Path
) -> None:
    aacp.sweep(deeper, data, BUDGETS, tmp_path, plan=plan(workers=3))
    assert results(tmp_path) == swept
    (engine,) = engines
    sent = [structure for _, structure in engine.submitted]
    assert len(sent) == len(set(sent)) > 12  # no known structure is sent again
    assert len({worker for worker, _ in engine.submitted}) == 3
    assert not engine.alive


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_in_its_second_search_resumes_with_other_workers(
    deeper, data, swept, engines, tmp_path: Path
) -> None:
    def stop(event: aacp.Event) -> None:
        if event.kind == "evaluation" and event.step == 5 and "macs-0.5" in event.folder:
            raise RuntimeError("killed")

    with aacp.listen(stop), pytest.raises(RuntimeError, match="killed"):
        aacp.sweep(deeper, data, BUDGETS, tmp_path, plan=plan(workers=3))
    assert not engines[0].alive
    logs = "".join((tmp_path / f"macs-{rate}" / "history.jsonl").read_text() for rate in (0.3, 0.5))
    recorded = {tuple(json.loads(line)["counts"]) for line in logs.splitlines()}
    assert len(recorded) == 12 + 5
    aacp.sweep(deeper, data, BUDGETS, tmp_path, plan=plan(workers=1))
    assert results(tmp_path) == swept
    assert not recorded & {structure.counts for _, structure in engines[1].submitted}


def test_workers_get_only_structures_without_a_score(model, data, engines) -> None:
    shared = SharedEstimate(PruningTask.of(model, data, None, torch.device("cpu")), plan(workers=2))
    graph = aacp.trace(model, data.train[0][0][None])
    first, second = aacp.Structure((8, 12)), aacp.Structure((4, 6))
    estimate = shared.estimate(graph)
    estimate.scores[first.counts] = 0.25
    shared.prepare_workers(graph)
    queue = shared.queue(estimate)
    for structure in (second, first):
        queue.submit(structure)
    scores = [queue.next_score(), queue.next_score()]
    assert scores[1] == 0.25
    assert [structure for _, structure in engines[0].submitted] == [second]
    assert estimate.scores[second.counts] == scores[0]
    shared.release()


@pytest.mark.slow
def test_workers_end_before_the_network_is_delivered(model, data, engines, tmp_path: Path) -> None:
    stages = []

    def watch(event: aacp.Event) -> None:
        if event.kind == "stage":
            stages.append((event.name, bool(engines and engines[0].alive)))

    with aacp.listen(watch):
        aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=plan(workers=2))
    assert engines[0].submitted
    assert stages[-1] == ("done", False)


@pytest.mark.slow
@pytest.mark.parametrize("work", ["one run", "finalists", "sweep"])
def test_the_memory_of_estimates_is_free_for_trainings(
    work: str, model, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[PSAE]] = []

    def estimate(*arguments: Any, **options: Any) -> PSAE:
        result = PSAE(*arguments, **options)
        made.append(weakref.ref(result))
        return result

    def watch(event: aacp.Event) -> None:
        if event.kind == "epoch":
            gc.collect()
            alive.append(sum(each() is not None for each in made))

    monkeypatch.setattr("aacp.pipeline.shared_estimate.PSAE", estimate)
    alive: list[int] = []
    trained = plan(recipe=aacp.Recipe(epochs=1, batch_size=32, lr=0.01), screening=0.5)
    with aacp.listen(watch):
        if work == "one run":
            aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=trained)
        elif work == "finalists":
            aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=replace(trained, finalists=2, rungs=(1,)))
        else:
            aacp.sweep(model, data, BUDGETS, tmp_path, plan=trained, train=True)
    assert (len(made), len(alive)) == (2, {"one run": 1, "finalists": 3, "sweep": len(BUDGETS)}[work])
    assert set(alive) == {0}


@pytest.mark.slow
def test_an_interrupted_search_resumes_with_another_number_of_workers(model, data, engines, tmp_path: Path) -> None:
    whole = aacp.find(model, data, {"macs": 0.5}, tmp_path / "whole", plan=plan(workers=4))

    def stop(event: aacp.Event) -> None:
        if event.kind == "evaluation" and event.step == 5:
            raise RuntimeError("killed")

    with aacp.listen(stop), pytest.raises(RuntimeError, match="killed"):
        aacp.find(model, data, {"macs": 0.5}, tmp_path / "parts", plan=plan(workers=4))
    resumed = aacp.find(model, data, {"macs": 0.5}, tmp_path / "parts", plan=plan(workers=1))
    assert [each.to_json() for each in resumed.history] == [each.to_json() for each in whole.history]


@pytest.mark.slow
@pytest.mark.usefixtures("engines")
def test_a_search_says_that_workers_will_wait(model, data, capsys: pytest.CaptureFixture[str]) -> None:
    for workers, method, is_said in ((5, "default", True), (4, "default", False), (5, "paper", False)):
        small = plan(workers=workers, method=method, evaluations=8)
        with show_progress():
            aacp.find(model, data, {"macs": 0.5}, plan=small)
        assert ("5 workers share 8 proposals, so that some of them wait" in capsys.readouterr().err) == is_said
