"""Processes of a fabric without a supervisor, so that a test sees how each of them ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

import aacp
from aacp.bench.problems import knapsack
from aacp.search.loop import SearchResult
from aacp.search.searcher import Searcher
from forks import CONTEXT

PROBLEM = knapsack(groups=12)
PATIENCE = 300  # seconds until a rank counts as hanging, far above what a slow machine needs


@dataclass(frozen=True)
class Ending:
    """How a rank ended: what it returned or raised, or neither if it was killed."""

    returned: Any = None
    raised: BaseException | None = None
    killed: bool = False


def launch(job: Callable[..., Any], *arguments: Any, size: int = 2) -> list[Ending]:
    """Run `job(fabric, *arguments)` on a number of ranks."""
    port = free_port()
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
    ranks = [
        CONTEXT.Process(target=_rank, args=(write, rank, size, port, job, arguments))
        for rank, (_, write) in enumerate(pipes)
    ]
    for rank, (_, write) in zip(ranks, pipes, strict=True):
        rank.start()
        write.close()
    return _endings(ranks, [read for read, _ in pipes])


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _endings(ranks: Iterable[Any], pipes: Iterable[Connection]) -> list[Ending]:
    deadline, endings = time.monotonic() + PATIENCE, []
    for rank, pipe in zip(ranks, pipes, strict=True):
        hangs = not pipe.poll(max(0.0, deadline - time.monotonic()))
        if hangs:
            rank.kill()
        try:
            endings.append(Ending(**pipe.recv()))
        except EOFError:
            endings.append(Ending(killed=not hangs))
        rank.join()
    return endings


def _rank(pipe: Connection, rank: int, size: int, port: int, job: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": 0}
    as_torchrun = {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in as_torchrun.items()})
    fabric = Fabric(accelerator="cpu", devices=size)
    fabric.launch()
    try:
        pipe.send({"returned": job(fabric, *arguments)})
    except BaseException as error:
        pipe.send({"raised": error})


# -- jobs: what the ranks do ----------------------------------------------------------------------------------------


def method(name: str, seed: int = 7) -> Searcher[Any]:
    if name == "batched":
        return aacp.GuidedEvolution(PROBLEM.space, PROBLEM.budget, seed, aacp.GuidedEvolutionSettings(batch=5))
    return aacp.searcher(name, PROBLEM.space, PROBLEM.budget, seed)


def search(fabric: Fabric, name: str, evaluations: int, folder: Path | None = None) -> SearchResult:
    return aacp.search_on(fabric, method(name), PROBLEM.estimate, evaluations=evaluations, folder=folder)


def search_in_plain_data(fabric: Fabric, name: str, evaluations: int) -> list[dict[str, Any]]:
    """A launcher that forks carries no frozen dataclass back."""
    return [candidate.to_json() for candidate in search(fabric, name, evaluations).history]


def search_for_a_while(fabric: Fabric) -> SearchResult:
    return aacp.search_on(fabric, method("ide+"), PROBLEM.estimate, seconds=0.2)


def search_with_other_seeds(fabric: Fabric) -> SearchResult:
    return aacp.search_on(fabric, method("ide+", fabric.global_rank), PROBLEM.estimate, evaluations=20)


def share(fabric: Fabric, name: str, evaluations: int) -> list[aacp.Structure]:
    """What each rank is given to estimate."""
    given: list[aacp.Structure] = []

    def estimate(structure: aacp.Structure) -> float:
        given.append(structure)
        return PROBLEM.estimate(structure)

    aacp.search_on(fabric, method(name), estimate, evaluations=evaluations)
    return given


def broken(
    fabric: Fabric, name: str, rank: int, at: int, breaks: BaseException | str, evaluations: int, folder: Path
) -> SearchResult:
    """A search whose estimate breaks on a rank, at its n-th call there."""
    pids, calls = fabric.all_gather(torch.tensor(os.getpid())).reshape(-1).tolist(), 0

    def estimate(structure: aacp.Structure) -> float:
        nonlocal calls
        calls += fabric.global_rank == rank
        if calls == at and fabric.global_rank == rank:
            _break(breaks, pids)
        return PROBLEM.estimate(structure)

    return aacp.search_on(fabric, method(name), estimate, evaluations=evaluations, folder=folder)


def _break(how: BaseException | str, pids: list[int]) -> None:
    if isinstance(how, BaseException):
        raise how
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in pids:  # as a terminal does it
        os.kill(pid, signal.SIGINT)


def prune_a_network(fabric: Fabric) -> SearchResult:
    """A search with a real network."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 24, 3), torch.nn.BatchNorm2d(24), torch.nn.ReLU(),
        torch.nn.Conv2d(24, 24, 3), torch.nn.BatchNorm2d(24), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(24, 10),
    ).eval()  # fmt: skip
    images, labels = torch.randn(128, 1, 8, 8), torch.randint(10, (128,))
    graph = aacp.trace(model, images[:2])
    space = aacp.SearchSpace(graph, pruning_step=1)
    budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=0.5))

    def confidence(network: torch.nn.Module, batches: aacp.Batches) -> float:
        """A score with as many bits as there are, unlike accuracy."""
        losses = [torch.nn.functional.cross_entropy(network(x), y).item() for x, y in batches]
        return -sum(losses) / len(losses)

    inheritance = aacp.Inheritance(model, graph, (images, labels), device=fabric.device)
    estimate = aacp.PSAE(inheritance, (images, labels), score=confidence)
    return aacp.search_on(fabric, aacp.GuidedEvolution(space, budget, seed=0), estimate, evaluations=16)
