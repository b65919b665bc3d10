"""Searches on Ray: the history is that of one process, with any number of workers and after losses."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.errors import InvalidData, InvalidOption, InvalidScore, MissingPackage
from aacp.latency.runtimes.torch import torch_threads
from aacp.workers.ray import RayEngine, RayWorker, WorkerRequest
from latency.simulator import Simulator
from plain_network import plain_network

EVALUATIONS = 12


def images() -> aacp.Data:
    generator = torch.Generator().manual_seed(0)
    parts = [(torch.randn(64, 1, 8, 8, generator=generator), torch.randint(10, (64,), generator=generator))] * 3
    return aacp.Data(*(torch.utils.data.TensorDataset(*part) for part in parts), name="random images")


class Confidence:
    """A score with as many bits as there are, unlike accuracy; it may end its process or raise an error once.

    Workers may leave their numbers in a file, a line for each network that they score.
    """

    def __init__(self, mark: Path | None = None, error: Exception | None = None, workers: Path | None = None) -> None:
        self.mark = mark
        self.error = error
        self.workers = workers
        self.searches = os.getpid()  # the process that searches; it scores the unpruned network only

    def __call__(self, model: nn.Module, batches: aacp.Batches) -> float:
        if self.error is not None and os.getpid() != self.searches:
            raise self.error
        if self.mark is not None and os.getpid() != self.searches and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        if self.workers is not None and os.getpid() != self.searches:
            with self.workers.open("a") as file:
                file.write(f"{os.getpid()}\n")
        losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in batches]
        return -sum(losses) / len(losses)


def plan(workers: int | str | None) -> aacp.Plan:
    return aacp.Plan(
        evaluations=EVALUATIONS, pruning_step=1, recipe=None, reconstruction=None, calibration_images=32,
        workers=workers, proposals=4,
    )  # fmt: skip


def history(workers: int | str | None, score: Any = None) -> list[tuple[tuple[int, ...], float]]:
    found = aacp.find(
        plain_network(), images(), {"macs": 0.5}, plan=plan(workers), score=score or Confidence(), device="cpu"
    )
    return [(candidate.structure.counts, candidate.score) for candidate in found.history]


@pytest.fixture(scope="module")
def expected() -> list[tuple[tuple[int, ...], float]]:
    with torch_threads(1):  # as workers do
        return history(None)


# -- without a cluster ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "request_"),
    [
        (3, WorkerRequest(count=3)),
        ("2", WorkerRequest(count=2)),
        ("auto", WorkerRequest()),
        ("ray://head:10001", WorkerRequest(address="ray://head:10001")),
    ],
)
def test_workers_are_a_number_auto_or_an_address(given: int | str, request_: WorkerRequest) -> None:
    assert WorkerRequest.of(given) == request_


@pytest.mark.parametrize(("given", "proposals", "words"), [
    (8, 8, "8 workers share 8 proposals, so that some of them wait; --proposals 16 keeps them busy"),
    (8, 16, ""),
    (1, 1, ""),
    ("auto", 8, ""),
    (8, None, ""),
])  # fmt: skip
def test_workers_that_would_wait_for_proposals_are_noticed(given: int | str, proposals: int | None, words: str) -> None:
    note = WorkerRequest.of(given).idle_note(proposals)
    assert note.startswith(words)
    assert bool(note) == bool(words)


@pytest.mark.parametrize("given", [0, -1, "0", "", "many", "ray://", "2.5", True])
def test_other_requests_are_rejected_by_the_plan(given: Any) -> None:
    with pytest.raises(InvalidOption, match="Give the number of workers"):
        aacp.Plan(workers=given)


def test_without_ray_the_message_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"aacp\[ray\]"):
        RayEngine(WorkerRequest(count=1), lambda: lambda structure: 0.0, uses_gpu=False)
    with pytest.raises(MissingPackage, match=r"aacp\[ray\]"):  # before the network is scored and traced
        plan(2).require_workers()


def test_an_address_that_does_not_answer_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"Ray does not answer on ray://127.0.0.1:1: .* `ray start --head`"):
        aacp.find(plain_network(), images(), {"macs": 0.5}, plan=plan("ray://127.0.0.1:1"), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("given", ["ray://127.0.0.1:port", "ray://:10001"])
def test_an_address_that_is_none_is_rejected(given: str) -> None:
    with pytest.raises(InvalidOption, match="Ray does not answer on"):
        WorkerRequest.of(given).require_answer()


def test_an_address_on_which_something_listens_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        WorkerRequest.of(f"ray://127.0.0.1:{server.getsockname()[1]}").require_answer()


def test_a_device_that_is_too_small_for_a_worker_is_named_with_what_helps() -> None:
    def make_estimate() -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    name, message = RayWorker(make_estimate).prepare(aacp.__version__)
    assert name == "WorkerFailed"
    assert "CUDA out of memory" in message
    assert "Use fewer workers" in message


def test_a_worker_of_another_version_says_so() -> None:
    answer = RayWorker(lambda: lambda structure: 0.0).prepare("0.0.1")
    assert isinstance(answer, tuple)
    assert answer[0] == "WorkerFailed"
    assert "Install the same version" in answer[1]


def test_a_worker_without_the_data_answers_with_the_error() -> None:
    def make_estimate() -> Any:
        raise InvalidData("There is no folder data/train. Give the folder of the images.")

    assert RayWorker(make_estimate).prepare(aacp.__version__) == (
        "InvalidData",
        "There is no folder data/train. Give the folder of the images.",
    )


def test_an_error_that_is_not_ours_becomes_a_failure_with_its_first_line() -> None:
    def estimate(structure: aacp.Structure) -> float:
        raise RuntimeError("CUDA out of memory.\nTried to allocate 2 GiB")

    worker = RayWorker(lambda: estimate)
    assert worker.prepare(aacp.__version__) == 0.0
    name, message = worker.score((1, 2))  # type: ignore[misc]
    assert name == "WorkerFailed"
    assert "RuntimeError: CUDA out of memory. Correct it" in message


def test_a_worker_is_asked_by_the_name_of_a_method_and_describes_errors() -> None:
    class Asked:
        def __call__(self, structure: aacp.Structure) -> list[int]:
            return list(structure)

        def place(self) -> str:
            return "here"

        def trouble(self) -> None:
            raise InvalidData("There is no folder. Give one.")

    worker = RayWorker(Asked)
    assert worker.prepare(aacp.__version__) == 0.0
    assert [worker.score((1, 2)), worker.ask("place")] == [[1, 2], "here"]
    assert worker.ask("trouble") == ("InvalidData", "There is no folder. Give one.")


@pytest.mark.parametrize(("kind", "most"), [("machine", 4), ("machine with a GPU", 2)])
def test_more_cpus_than_a_machine_has_are_rejected(monkeypatch: pytest.MonkeyPatch, kind: str, most: int) -> None:
    """Ray would wait for such a machine without end; the one with eight CPUs is gone."""
    nodes = [({"CPU": 4.0}, True), ({"CPU": 2.0, "GPU": 1.0}, True), ({"CPU": 8.0, "GPU": 1.0}, False)]
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 6.0, "GPU": 1.0},
        nodes=lambda: [{"Resources": resources, "Alive": alive} for resources, alive in nodes],
    )
    monkeypatch.setattr("aacp.workers.ray.require_package", lambda *_: ray)
    engine = RayEngine(WorkerRequest(count=1), lambda: lambda structure: 0.0, uses_gpu="GPU" in kind, cpus=5)
    with pytest.raises(InvalidOption, match=f"needs 5 CPUs of one {kind}, but the largest of the cluster has {most}"):
        engine.start()


def test_the_start_of_ray_is_announced_before_it(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    said = []
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda *_, **__: said.append(capsys.readouterr().err))
    ray.cluster_resources = dict
    monkeypatch.setattr("aacp.workers.ray.require_package", lambda *_: ray)
    engine = RayEngine(WorkerRequest(count=1), lambda: lambda structure: 0.0, uses_gpu=False)
    with aacp.show_progress(), pytest.raises(InvalidOption, match="The workers need a CPU"):
        engine.start()
    assert said == ["starting Ray and its workers\n"]


@pytest.mark.parametrize(
    ("address", "variable", "place"),
    [
        (None, None, "this machine"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379 (RAY_ADDRESS)"),
        ("ray://head:10001", "10.0.0.1:6379", "ray://head:10001"),
    ],
)
def test_a_cluster_that_does_not_answer_is_named(
    address: str | None, variable: str | None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(*_: Any, **__: Any) -> None:
        raise ConnectionError("refused")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr("aacp.workers.ray.require_package", lambda *_: ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    engine = RayEngine(WorkerRequest(address=address), lambda: lambda structure: 0.0, uses_gpu=False)
    with pytest.raises(InvalidOption, match=re.escape(f"Ray does not answer on {place}: ")):
        engine.start()


# -- on a cluster of three nodes: the gate searches once, while a node is killed --------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs, so that no worker runs there, and two nodes with one CPU each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes.first = nodes.add_node(num_cpus=1)
    nodes.second = nodes.add_node(num_cpus=1)
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
    ray.init(nodes.address, log_to_driver=False, configure_logging=False, runtime_env=environment)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.slow
@pytest.mark.extensive
def test_two_nodes_give_the_history_of_one_process(cluster: Any, expected: Any) -> None:
    assert history("auto") == expected
    assert history(1) == expected


@pytest.mark.slow
@pytest.mark.extensive
def test_a_killed_worker_is_replaced_and_the_history_is_the_same(cluster: Any, expected: Any, tmp_path: Path) -> None:
    assert history("auto", Confidence(mark=tmp_path / "killed")) == expected
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
@pytest.mark.extensive
def test_an_error_in_a_worker_is_raised_here(cluster: Any) -> None:
    with pytest.raises(InvalidData, match="no such image"):
        history("auto", Confidence(error=InvalidData("There is no such image. Give another.")))
    with pytest.raises(InvalidScore, match="ValueError: odd"):
        history("auto", Confidence(error=ValueError("odd")))


@pytest.mark.slow
@pytest.mark.extensive
def test_a_sweep_on_two_nodes_has_the_histories_of_one_process(cluster: Any, tmp_path: Path) -> None:
    """The same two workers serve both searches."""

    def swept(folder: Path, workers: str | None, score: Confidence) -> list[str]:
        budgets = [{"macs": 0.4}, {"macs": 0.5}]
        found = aacp.sweep(plain_network(), images(), budgets, folder, plan=plan(workers), score=score, device="cpu")
        return [(run.path / name).read_text() for run in found.folders for name in ("history.jsonl", "structure.json")]

    with torch_threads(1):
        alone = swept(tmp_path / "alone", None, Confidence())
    assert swept(tmp_path / "nodes", "auto", Confidence(workers=tmp_path / "workers")) == alone
    assert len(set((tmp_path / "workers").read_text().split())) == 2


class Process(Simulator):
    """A runtime whose version is the number of the process that runs it."""

    @property
    def version(self) -> str:  # type: ignore[override]
        return str(os.getpid())


@pytest.mark.slow
@pytest.mark.extensive
def test_a_latency_is_measured_by_one_worker(cluster: Any) -> None:
    def measured(threads: int) -> aacp.LatencyTable:
        model, example = plain_network(), torch.zeros(1, 1, 8, 8)
        graph = aacp.trace(model, example)
        where = aacp.Deployment(Process(), "npu", threads=threads)
        options = {"structures": 8, "held_out": 5, "seconds_per_structure": 1e-4, "workers": 1}
        return aacp.measure_latency(model, graph, aacp.SearchSpace(graph, 4), where, example=example, **options)

    assert measured(threads=1).conditions.version != str(os.getpid())
    with pytest.raises(InvalidOption, match="needs 2 CPUs of one machine"):  # the nodes have one each
        measured(threads=2)


@pytest.mark.slow
def test_what_cannot_be_sent_is_rejected(cluster: Any) -> None:
    score = Confidence()
    score.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match="cannot be sent to workers"):
        history("auto", score)


@pytest.mark.slow
def test_a_node_that_is_killed_in_mid_search_changes_nothing(cluster: Any, expected: Any) -> None:
    """The last test of the cluster, since the node is gone afterwards."""
    seen = []

    def kill_a_node(event: aacp.Event) -> None:
        if event.kind == "evaluation":
            seen.append(event.step)
            if len(seen) == 5:
                cluster.remove_node(cluster.second, allow_graceful=False)

    with aacp.listen(kill_a_node):
        assert history("auto") == expected
    assert len(seen) == len(expected)
