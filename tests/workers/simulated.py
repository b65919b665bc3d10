"""An engine of simulated workers with a virtual clock, for tests and for benchmarks/workers_simulated.py."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from aacp.channels.structure import Structure
from aacp.workers.pool import WorkerLost


class SimulatedEngine:
    """Workers that take virtual time for every estimate.

    Args:
        count: the number of workers that are wanted; it may be changed while the pool works.
        estimate: the score of a structure.
        seconds: how long the estimate of a structure takes, by the number of the ticket.
        lost: the numbers of tickets whose worker ends instead of answering; starts have numbers too.
        driver: the seconds that the process which searches has taken so far; they pass for the workers too.
    """

    def __init__(
        self,
        count: int,
        estimate: Callable[[Structure], float],
        seconds: Callable[[int], float] = lambda ticket: 1.0,
        lost: Sequence[int] = (),
        driver: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.count = count
        self.now = 0.0
        self.busy = 0.0  # virtual seconds of all workers together
        self.alive: set[int] = set()
        self.submitted: list[tuple[int, Structure]] = []
        self.times: list[tuple[float, float]] = []  # when each estimate begins and ends
        self._estimate = estimate
        self._seconds = seconds
        self._lost = set(lost)
        self._driver = driver
        self._driven = driver()  # the time of the driver that has passed for the workers
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
        self._drive()
        self.submitted.append((worker, structure))
        seconds = self._seconds(self._tickets)
        self.busy += seconds
        self.times.append((self.now, self.now + seconds))
        return self._begin(structure, seconds)

    def _begin(self, structure: Structure | None, seconds: float) -> int:
        ticket = self._tickets
        self._tickets += 1
        self._work[ticket] = structure
        heapq.heappush(self._due, (self.now + seconds, ticket))
        return ticket

    def _drive(self) -> None:
        driven = self._driver()
        self.now += driven - self._driven
        self._driven = driven

    def wait(self, tickets: Sequence[int], seconds: float) -> list[int]:
        """The tickets that are done now or, if the caller waits at all, those that are done next."""
        self._drive()
        known = set(tickets)
        while self._due and self._due[0][1] not in known:
            heapq.heappop(self._due)  # of a worker that was stopped
        if not self._due or (seconds == 0 and self._due[0][0] > self.now):
            self.now += seconds
            return []
        self.now = max(self.now, self._due[0][0])
        done = []
        while self._due and self._due[0][0] <= self.now:
            done.append(heapq.heappop(self._due)[1])
        return [ticket for ticket in done if ticket in known]

    def result(self, ticket: int) -> float:
        if ticket in self._lost:
            raise WorkerLost(f"ticket {ticket} is lost")
        structure = self._work.pop(ticket)
        return 0.0 if structure is None else self._estimate(structure)

    def stop(self, worker: int) -> None:
        self.alive.discard(worker)

    def close(self) -> None:
        assert not self.alive
