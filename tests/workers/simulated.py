"""An engine of simulated workers with a virtual clock, for tests and for benchmarks/workers_simulated.py."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from aacp.structure import Structure
from aacp.workers.pool import WorkerLost


class SimulatedEngine:
    """Workers that take virtual time for every estimate.

    Args:
        count: the number of workers that are wanted; it may be changed while the pool works.
        estimate: the score of a structure.
        seconds: how long the estimate of a structure takes, by the number of the ticket.
        lost: the numbers of tickets whose worker ends instead of answering; starts have numbers too.
    """

    def __init__(
        self,
        count: int,
        estimate: Callable[[Structure], float],
        seconds: Callable[[int], float] = lambda ticket: 1.0,
        lost: Sequence[int] = (),
    ) -> None:
        self.count = count
        self.now = 0.0
        self.busy = 0.0  # virtual seconds of all workers together
        self.alive: set[int] = set()
        self.submitted: list[tuple[int, Structure]] = []
        self._estimate = estimate
        self._seconds = seconds
        self._lost = set(lost)
        self._tickets = 0
        self._due: list[tuple[float, int]] = []
        self._work: dict[int, Structure | None] = {}

    def wanted(self) -> int:
        return self.count

    def start(self) -> tuple[int, int]:
        worker = 1000 + self._tickets
        self.alive.add(worker)
        return worker, self._begin(None, 0.0)

    def submit(self, worker: int, structure: Structure) -> int:
        assert worker in self.alive
        self.submitted.append((worker, structure))
        seconds = self._seconds(self._tickets)
        self.busy += seconds
        return self._begin(structure, seconds)

    def _begin(self, structure: Structure | None, seconds: float) -> int:
        ticket = self._tickets
        self._tickets += 1
        self._work[ticket] = structure
        heapq.heappush(self._due, (self.now + seconds, ticket))
        return ticket

    def wait(self, tickets: Sequence[int], seconds: float) -> list[int]:
        while self._due:
            self.now, ticket = heapq.heappop(self._due)
            if ticket in tickets:
                return [ticket]
        self.now += seconds
        return []

    def result(self, ticket: int) -> float:
        if ticket in self._lost:
            raise WorkerLost(f"ticket {ticket} is lost")
        structure = self._work.pop(ticket)
        return 0.0 if structure is None else self._estimate(structure)

    def stop(self, worker: int) -> None:
        self.alive.discard(worker)

    def close(self) -> None:
        assert not self.alive
