"""RankLinks: connections between rank 0 and every other process of a search.

Messages go from one rank to one other rank. If a rank dies, the system reports it to the rank that waits for it, and
all others can still be reached. Messages always use gloo, because NCCL would wait for a dead rank.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from aacp.errors import InvalidOption, WorkerFailed

if TYPE_CHECKING:  # importing it takes more than a second, for one annotation
    from lightning_fabric import Fabric

# The element type of a message says what the message is.
TRIAL = torch.int64  # a structure to estimate
SCORE = torch.float64  # its score
TEXT = torch.uint8  # JSON
TYPES = (TRIAL, SCORE, TEXT)
NO_TIMEOUT = timedelta(days=365)  # an estimate may take any time; a dead rank is noticed without a timeout


class RankLinks:
    """One rank's end of the connections."""

    def __init__(self, fabric: Fabric) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise InvalidOption(
                f"The fabric has {fabric.world_size} processes, but they are not connected. "
                "Call its `launch` before the search."
            )
        self.rank = fabric.global_rank
        self.size = fabric.world_size
        self._group = dist.new_group(backend="gloo")

    def send(self, message: Tensor, rank: int) -> None:
        """Send a message to a rank and wait until it is received."""
        header = torch.tensor([TYPES.index(message.dtype), message.numel()])
        with _reporting_death_of(rank):
            for part in (header, message):
                self._wait(dist.isend(part, rank, group=self._group))

    def receive(self, rank: int) -> Tensor:
        """Wait for the next message from a rank."""
        header = torch.empty(2, dtype=torch.int64)
        with _reporting_death_of(rank):
            self._wait(dist.irecv(header, rank, group=self._group))
            kind, length = header.tolist()
            message = torch.empty(length, dtype=TYPES[kind])
            self._wait(dist.irecv(message, rank, group=self._group))
        return message

    def _wait(self, work: dist.Work | None) -> None:
        assert work is not None  # this rank is in the group
        work.wait(NO_TIMEOUT)

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def written(content: Any) -> Tensor:
    """Plain data as a message: JSON, which preserves every bit of a float."""
    return torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=TEXT)


def read(message: Tensor) -> Any:
    """The plain data of a message made by `written`."""
    return json.loads(message.numpy().tobytes())


@contextmanager
def _reporting_death_of(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo raises this for a closed connection
        raise WorkerFailed(
            f"Rank {rank} ended before the search did. "
            "Its own output may say why; with a run folder, the same call resumes after the last score."
        ) from error


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: after half a message two ranks would wait for each other."""
    held: list[int] = []
    try:
        with interrupts_to(lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupts_to(handler: Callable[[int, Any], None] | signal.Handlers) -> Iterator[None]:
    """Let a handler receive Ctrl-C during the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
