"""Ranks: the processes of a launched fabric that prune together. Rank 0 searches and delivers, every rank trains.

The other ranks wait for rank 0 outside of the fabric's own collectives, whose time limits are shorter than a search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from aacp.errors import InvalidOption, WorkerFailed, first_line

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LONGEST_SEARCH = timedelta(days=30)  # how long a rank waits for the search of rank 0
TRAIN = "train"
END = "end"


class Ranks:
    """The processes of a launched fabric, each of which makes one of these at the same point of the program.

    Args:
        fabric: the fabric; one with a single process needs no other rank.
    """

    def __init__(self, fabric: Fabric) -> None:
        if fabric.world_size > 1 and not dist.is_initialized():
            raise InvalidOption(
                f"The fabric has {fabric.world_size} processes, but they are not connected. Call fabric.launch() first."
            )
        self.fabric = fabric
        self._group = dist.new_group(backend="gloo", timeout=LONGEST_SEARCH) if fabric.world_size > 1 else None
        self._are_waiting = True  # of rank 0: whether the other ranks wait for its next message

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return bool(self.fabric.is_global_zero)

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Rank 0 within this context; its end, or the error that ends it, is sent to the ranks that wait."""
        try:
            yield
        except BaseException as error:
            self._send(f"{type(error).__name__}: {first_line(error)}")
            raise
        self._send(END)

    def of_rank_0(self, work: Callable[[], Any]) -> Any:
        """The result of work that rank 0 does while the others wait. All ranks get it, as it is read from JSON."""
        text = ""
        if self.leads:
            with self.leading():
                text = json.dumps(work())
        else:
            self.wait_for_rank_0()
        message = [text]
        if self._group is not None:
            dist.broadcast_object_list(message, src=0, group=self._group)
        return json.loads(message[0])

    @contextmanager
    def training(self) -> Iterator[None]:
        """A training of all ranks. Within it the ranks report errors to each other, and none waits for a message."""
        if self.leads:
            self._send(TRAIN)
            self._are_waiting = False
        yield
        self._are_waiting = True

    def wait_for_rank_0(self) -> None:
        """Wait until rank 0 begins a training or ends; raise an error if it failed."""
        message: list[Any] = [None]
        dist.broadcast_object_list(message, src=0, group=self._group)
        if message[0] not in (TRAIN, END):
            raise WorkerFailed(f"Process 0 failed: {message[0]}. Look at its messages; the same program resumes.")

    def _send(self, message: str) -> None:
        if self._group is not None and self._are_waiting:
            dist.broadcast_object_list([message], src=0, group=self._group)
