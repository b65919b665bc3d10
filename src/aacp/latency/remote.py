"""RemoteTimer: structures are timed in another process, by one worker of a Ray cluster, on the machine that it runs on.

A latency is that of one machine, so that a measurement is never divided among workers. The log of the measurement and
its table stay in the process that asks for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from aacp.channels.structure import Structure
from aacp.errors import AACPError, InvalidOption, WorkerFailed
from aacp.latency.deployment import Deployment
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure
from aacp.latency.timers import NetworkTimer
from aacp.workers.pool import PATIENCE_SECONDS, WorkerLost
from aacp.workers.ray import RayEngine, WorkerRequest

_logger = logging.getLogger("aacp")


def one_worker(given: int | str) -> WorkerRequest:
    """The request for the worker that measures; rejects several, and a cluster that does not answer."""
    request = WorkerRequest.of(given)
    if request.address is None and request.count != 1:
        raise InvalidOption(
            f"A latency is that of one machine, so workers={given!r} cannot share a measurement. Give 1, or the "
            "address of a Ray cluster, of which one worker is used."
        )
    request.require_answer()
    return replace(request, count=1)


class RemoteTimer:
    """Measures structures in a worker.

    Attributes:
        pieces: the pieces of the network.
        conditions: those of the machine that the worker runs on.
    """

    def __init__(self, engine: RayEngine, worker: Any, pieces: tuple[Piece, ...]) -> None:
        self._engine = engine
        self._worker = worker
        self.pieces = pieces
        self.conditions: MeasurementConditions = self._answer(engine.ask(worker, "conditions"))

    def __call__(self, structure: Structure) -> TimedStructure:
        measured: TimedStructure = self._answer(self._engine.submit(self._worker, structure))
        return measured

    def _answer(self, ticket: Any) -> Any:
        try:
            return self._engine.result(ticket)
        except WorkerLost as lost:
            raise _failed(lost) from lost


@contextmanager
def timing_on(request: WorkerRequest, timer: NetworkTimer, where: Deployment) -> Iterator[RemoteTimer]:
    """Send a timer to a worker, and end the worker afterwards.

    Args:
        request: the worker, as `one_worker` returns it.
        timer: what measures a structure; its process needs the runtime and the device, this one does not.
        where: its deployment. The worker gets as many CPUs as this has threads, and a GPU if this names one.
    """
    uses_gpu = where.device.startswith("cuda")
    engine = RayEngine(request, lambda: timer, uses_gpu=uses_gpu, cpus=where.threads)
    try:
        worker, ready = engine.start()
        try:
            _wait_for(engine, ready)
            yield RemoteTimer(engine, worker, timer.pieces)
        finally:
            engine.stop(worker)
    finally:
        engine.close()


def _wait_for(engine: RayEngine, ready: Any) -> None:
    """Wait until a worker has started, and say so while the cluster has no place for it."""
    while not engine.wait([ready], PATIENCE_SECONDS):
        _logger.warning("No worker has been ready for %.0f s. The measurement waits.", PATIENCE_SECONDS)
    try:
        engine.result(ready)
    except WorkerLost as lost:
        raise _failed(lost) from lost


def _failed(lost: WorkerLost) -> AACPError:
    return WorkerFailed(
        f"The worker that measures has ended: {lost}. See why, then call again; with a file, what was measured is kept."
    )
