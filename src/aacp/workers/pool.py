"""WorkerPool: a queue of structures for many workers, which get them as they become free; scores come in order.

The pool knows nothing of processes and machines: an `Engine` starts workers and carries structures to them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from aacp.channels.structure import Structure
from aacp.errors import AACPError, WorkerFailed
from aacp.search.queue import Work, structure_of

MAX_LOSSES = 3  # workers that may end on the same structure, or before they are ready, until the search gives up
POLL_SECONDS = 1.0  # how long to wait for a score before the number of workers is considered again
PATIENCE_SECONDS = 60.0  # how long no worker may be ready before a warning says so
ADVICE = "See why (often too little memory), then run the same command again; no score is lost."

_logger = logging.getLogger("aacp")


class WorkerLost(AACPError):
    """A worker ended before it answered: its process or its machine is gone."""


class Engine(Protocol):
    """Starts workers and runs estimates on them. Handles and tickets are opaque to the pool; tickets are hashable."""

    def wanted(self) -> int:
        """The number of workers that there should be now; it may grow and shrink."""
        ...

    def start(self) -> tuple[Any, Any]:
        """Start a worker without waiting for it: its handle, and the ticket that is done when it is ready."""
        ...

    def submit(self, worker: Any, work: Work) -> Any:
        """Let a worker that is ready estimate a structure: the ticket of its score."""
        ...

    def wait(self, tickets: Sequence[Any], seconds: float) -> Sequence[Any]:
        """The tickets that are done: at least one, unless the time is over."""
        ...

    def result(self, ticket: Any) -> float:
        """The score of a ticket that is done. Raises WorkerLost if the worker ended, or the error of the estimate."""
        ...

    def stop(self, worker: Any) -> None:
        """End a worker, also one that is gone."""
        ...

    def close(self) -> None:
        """End everything that the engine started."""
        ...


class WorkerPool:
    """Estimates structures on the workers of an engine, which it starts, replaces and ends.

    Structures may be submitted at any time: a worker that is free gets the next one. Which worker estimates a structure
    depends on chance, the order of the scores does not. A structure whose worker is lost is estimated again by another
    one.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: list[Any] = []
        self._starting: dict[Any, Any] = {}  # workers by the tickets of their start
        self._running: dict[Any, tuple[Any, int]] = {}  # workers and numbers of structures, by ticket
        self._submitted = 0  # the number of structures so far
        self._returned = 0  # the number of scores that were returned
        self._structures: dict[int, Work] = {}  # those without a score, by number
        self._waiting: deque[int] = deque()  # the numbers of those that no worker has
        self._scores: dict[int, float] = {}  # scores that were not returned yet, by number
        self._losses: Counter[int] = Counter()  # workers that ended on a structure, by its number
        self._failed_starts = 0  # since a worker was last ready
        self._last_ready = 0.0  # when a worker was last ready, or when the pool began to wait for one

    def submit(self, structure: Work) -> None:
        """Add a structure; this does not wait for its score."""
        self._structures[self._submitted] = structure
        self._waiting.append(self._submitted)
        self._submitted += 1

    def next_score(self) -> float:
        """The score of the earliest structure whose score was not returned yet."""
        self._last_ready = time.monotonic()
        self._work(0.0 if self._returned in self._scores else POLL_SECONDS)
        while self._returned not in self._scores:
            self._work(POLL_SECONDS)
        self._returned += 1
        return self._scores.pop(self._returned - 1)

    def clear(self) -> None:
        """Forget all structures whose scores were not returned yet, and end the workers that estimate them."""
        for worker, _ in self._running.values():
            self._engine.stop(worker)
        self._running.clear()
        self._structures.clear()
        self._waiting.clear()
        self._scores.clear()
        self._losses.clear()
        self._returned = self._submitted

    def map(self, structures: Iterable[Structure]) -> Iterator[float]:
        """The scores of the structures, in order, each as soon as it and all before it are known."""
        first = self._submitted
        try:
            for structure in structures:
                self.submit(structure)
            for _ in range(self._submitted - first):
                yield self.next_score()
        finally:  # after an error or an interrupt, some workers still estimate structures that nobody waits for
            self.clear()

    def close(self) -> None:
        """End all workers; a later structure starts new ones."""
        self.clear()
        for worker in (*self._idle, *self._starting.values()):
            self._engine.stop(worker)
        self._idle.clear()
        self._starting.clear()
        self._engine.close()

    def _work(self, seconds: float) -> None:
        """Give every free worker a structure, and collect what is done within some seconds."""
        self._start_workers(len(self._waiting) + len(self._running))
        self._hand_out()
        for ticket in self._engine.wait([*self._starting, *self._running], seconds):
            if ticket in self._starting:
                self._welcome(ticket)
            else:
                self._collect(ticket)
        self._hand_out()
        self._warn_if_nobody_is_ready()

    def _hand_out(self) -> None:
        while self._idle and self._waiting:
            worker = self._idle.pop()
            number = self._waiting.popleft()
            self._running[self._engine.submit(worker, self._structures[number])] = (worker, number)

    def _start_workers(self, needed: int) -> None:
        """Start as many workers as the engine wants, but no more than there are structures."""
        present = len(self._idle) + len(self._starting) + len(self._running)
        for _ in range(min(self._engine.wanted(), needed) - present):
            worker, ticket = self._engine.start()
            self._starting[ticket] = worker

    def _collect(self, ticket: Any) -> None:
        worker, number = self._running.pop(ticket)
        self._idle.append(worker)
        try:
            self._scores[number] = self._engine.result(ticket)
            del self._structures[number]
        except WorkerLost as lost:
            self._idle.remove(worker)
            self._engine.stop(worker)
            self._give_back(number, lost)

    def _give_back(self, number: int, lost: WorkerLost) -> None:
        """Let another worker estimate a structure whose worker was lost, unless it has cost too many workers."""
        self._losses[number] += 1
        if self._losses[number] >= MAX_LOSSES:
            counts = list(structure_of(self._structures[number]))
            raise WorkerFailed(f"{MAX_LOSSES} workers ended while they estimated {counts}: {lost}. {ADVICE}") from lost
        _logger.warning("A worker was lost (%s). Its structure is estimated again.", lost)
        self._waiting.appendleft(number)

    def _welcome(self, ticket: Any) -> None:
        """Add a worker that has started to those that are free, or give up after several failed starts."""
        worker = self._starting[ticket]
        try:
            self._engine.result(ticket)
            del self._starting[ticket]
            self._idle.append(worker)
            self._failed_starts = 0
        except WorkerLost as lost:
            del self._starting[ticket]
            self._engine.stop(worker)
            self._failed_starts += 1
            if self._failed_starts >= MAX_LOSSES:
                raise WorkerFailed(f"{MAX_LOSSES} workers ended before they were ready: {lost}. {ADVICE}") from lost

    def _warn_if_nobody_is_ready(self) -> None:
        now = time.monotonic()
        if self._idle or self._running:
            self._last_ready = now
        elif now - self._last_ready > PATIENCE_SECONDS:
            self._last_ready = now
            _logger.warning(
                "No worker has been ready for %.0f s: %d are starting, %d are wanted. The search waits.",
                PATIENCE_SECONDS, len(self._starting), self._engine.wanted(),
            )  # fmt: skip
