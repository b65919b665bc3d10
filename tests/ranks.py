"""Processes of a fabric without a supervisor, so that a test sees how each of them ends."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from lightning_fabric import Fabric

from aacp.train.fabric import collective_errors
from forks import CONTEXT

PATIENCE = 300  # seconds until a rank counts as hanging, far above what a slow machine needs


@dataclass(frozen=True)
class Ending:
    """How a rank ended: what it returned or raised, or neither if it was killed."""

    returned: Any = None
    raised: BaseException | None = None
    killed: bool = False


def fails_in_one(fabric: Fabric, failing: int, error: Exception) -> None:
    """Raises in one rank while the others wait, as they would for a gradient."""
    if fabric.global_rank == failing:
        raise error
    with collective_errors(fabric, None, torch.nn.Identity()):
        fabric.barrier()


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
