"""Star: the processes of a search, rank 0 in the middle and every other connected with it alone.

Messages go from one rank to one other, not to all at once: whoever waits for a rank that dies is told so by the system,
while the rest can still be reached. They travel through gloo whatever the fabric computes with, since nccl would wait.
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

if TYPE_CHECKING:  # a second and more to import, for one annotation
    from lightning_fabric import Fabric

TRIAL, SCORE, TEXT = torch.int64, torch.float64, torch.uint8  # a message says by its type what it is
TYPES = (TRIAL, SCORE, TEXT)
FOREVER = timedelta(days=365)  # an estimate takes as long as it takes; a rank that is gone is noticed without a clock


class RankLinks:
    """One rank's end of the connections."""

    def __init__(self, fabric: Fabric) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise InvalidOption(
                f"The fabric is to have {fabric.world_size} processes, but they are not connected. "
                "Call its `launch` before the search."
            )
        self.rank, self.size = fabric.global_rank, fabric.world_size
        self._group = dist.new_group(backend="gloo")

    def send(self, message: Tensor, rank: int) -> None:
        """Give a message to a rank; waits until it is taken."""
        header = torch.tensor([TYPES.index(message.dtype), message.numel()])
        with _noticing(rank):
            for part in (header, message):
                self._wait(dist.isend(part, rank, group=self._group))

    def receive(self, rank: int) -> Tensor:
        """Wait for the next message of a rank."""
        header = torch.empty(2, dtype=torch.int64)
        with _noticing(rank):
            self._wait(dist.irecv(header, rank, group=self._group))
            kind, length = header.tolist()
            message = torch.empty(length, dtype=TYPES[kind])
            self._wait(dist.irecv(message, rank, group=self._group))
        return message

    def _wait(self, work: dist.Work | None) -> None:
        assert work is not None  # this rank is in the group
        work.wait(FOREVER)

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def written(content: Any) -> Tensor:
    """Plain data as a message: JSON, in which a float comes back with every bit."""
    return torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=TEXT)


def read(message: Tensor) -> Any:
    """What `written` was given."""
    return json.loads(message.numpy().tobytes())


@contextmanager
def _noticing(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # all that gloo has to say of a closed connection
        raise WorkerFailed(
            f"Rank {rank} ended before the search did. "
            "Its own output may say why; with a run folder, the same call goes on from the last score."
        ) from error


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of this block: a message half sent would leave two ranks waiting for each other."""
    held: list[int] = []
    try:
        with interrupts_to(lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupts_to(handler: Callable[[int, Any], None] | signal.Handlers) -> Iterator[None]:
    """Ctrl-C goes to a handler during this block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
