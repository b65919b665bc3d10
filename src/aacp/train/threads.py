"""Threads: a resumed run uses the recorded number of them.

The last bits of what a processor computes depend on how many threads share the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from aacp.runs.files import RUN
from aacp.runs.folder import RunFolder
from aacp.runs.mending import announce
from aacp.user.values import counted

THREADS = "threads"  # the field that records the number of threads


@contextmanager
def using_threads(count: int, device: torch.device, place: Path) -> Iterator[None]:
    """Use the recorded number of threads inside the block, and say so if the present number is another.

    Args:
        count: the recorded number; 0 if none is recorded.
        device: where the work is done; a GPU computes the same with any number of threads.
        place: the folder that records the number, for the message.
    """
    present = torch.get_num_threads()
    if count < 1 or count == present or device.type != "cpu":
        yield
        return
    announce(
        place, f"began with {counted(count, 'thread')} and continues with {count}, not {present}, for the same result."
    )
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(present)


def recorded_threads(folder: RunFolder) -> int:
    """The number of threads that the run.json of a training records; 0 if there is none."""
    known = folder.read_json(RUN)
    count = known.get(THREADS) if isinstance(known, Mapping) else None
    return count if isinstance(count, int) else 0
