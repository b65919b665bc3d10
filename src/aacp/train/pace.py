"""Pace: whether the data keeps up with the device in an epoch of training, and what limits the speed otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Batch = TypeVar("Batch")
WARMUP = 3  # steps that are not timed: kernels are chosen in them, and the first batches take longer
MAX_TIMED = 100  # steps that are timed on a GPU in an epoch
STARVED = 0.9  # the data limits the speed if it is below this share of what the device can do


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class Pace:
    """The times of an epoch.

    Args:
        device: where the network is trained.
        workers: the number of processes that prepare the data; None if it is on the device, where nothing waits for it.
    """

    def __init__(self, device: torch.device, workers: int | None) -> None:
        self.device = device
        self.workers = workers
        self._steps = 0
        self._begun = 0.0  # when the first step after the warm-up began to wait for its batch
        self._ended = 0.0
        self._busy: list[float] = []  # seconds of computing of each timed step, on a CPU
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []  # around each timed step, on a GPU

    def waiting(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, counted."""
        for batch in batches:
            yield batch
            self._steps += 1
            self._ended = time.perf_counter()
            if self._steps == WARMUP:
                self._begun = self._ended

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Time the computation of a step; on a GPU by events, which do not make the processor wait."""
        if self.workers is None or self._steps < WARMUP or len(self._events) == MAX_TIMED:
            yield
        elif self.device.type == "cuda":
            pair = (_event(), _event())
            pair[0].record()
            yield
            pair[1].record()
            self._events.append(pair)
        else:
            begun = time.perf_counter()
            yield
            self._busy.append(time.perf_counter() - begun)

    def limit(self, examples_per_step: float) -> str:
        """One sentence if the data limited the speed, otherwise nothing; the device must have finished."""
        times = self._busy or [begin.elapsed_time(end) / 1000 for begin, end in self._events]
        seconds = self._ended - self._begun
        if not times or seconds <= 0:
            return ""
        possible = examples_per_step * len(times) / max(1e-9, sum(times))
        reached = examples_per_step * (self._steps - WARMUP) / seconds
        if reached >= STARVED * possible:
            return ""
        processes = f"{self.workers} worker{'' if self.workers == 1 else 's'}" if self.workers else "no workers"
        return (
            f"the data limits the speed: decoding {reached:,.0f} examples/s with {processes}; "
            f"the device could do {possible:,.0f}"
        )
