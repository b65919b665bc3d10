"""Timers: structures of one network, timed in turns with the unpruned network, with the seconds of their pieces."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.data.examples import moved
from aacp.graph.examples import with_batch
from aacp.graph.surgery import shrink
from aacp.latency.curves import Values
from aacp.latency.deployment import Deployment, conditions_here
from aacp.latency.judging import QUIET_NOISE
from aacp.latency.layers import describe_pieces, pieces_of_graph, timed_layers
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure
from aacp.latency.runtimes.runtime import PieceTimer
from aacp.latency.runtimes.torch import torch_threads
from aacp.latency.timing import mean_seconds
from aacp.user.progress import report_progress

WARMUP = 2  # turns that are not counted
MIN_TURNS = 7  # timed turns, even if they take longer than the requested seconds
MAX_TURNS = 60  # timed turns, before any are added because of noise
MAX_EXTENSION = 4  # a noisy measurement may take up to this many times the requested seconds
# The seconds of the unpruned network are this quantile over its turns, because interference only adds time.
LEVEL_QUANTILE = 0.1
PROGRESS_LINES = 10  # on standard error while structures are measured


class StructureTimer(Protocol):
    """Measures structures: the seconds of the whole, of its pieces, and of the unpruned network in the same turns."""

    pieces: tuple[Piece, ...]

    def __call__(self, structure: Structure) -> TimedStructure: ...


class NetworkTimer:
    """Measures structures of a network where it will run.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        example: an input; it is repeated or cut to the batch of the deployment.
        where: runtime, device, batch and threads.
        seconds_per_structure: how long to measure each structure, about; longer if the machine is busy.
    """

    def __init__(
        self, model: nn.Module, graph: ChannelGraph, example: Any, where: Deployment, seconds_per_structure: float
    ) -> None:
        self._model = model
        self._graph = graph
        self._where = where
        self._seconds = seconds_per_structure
        self._example = with_batch(moved(example, "cpu"), where.batch)
        self._layers, descriptions = describe_pieces(model, self._example, graph)
        self.pieces = pieces_of_graph(graph, self._layers, descriptions)
        self._unpruned: PieceTimer | None = None

    def conditions(self) -> MeasurementConditions:
        """The conditions of what is measured in this process; rejects what cannot be measured here."""
        return conditions_here(self._model, self._where)

    def __call__(self, structure: Structure) -> TimedStructure:
        # torch is limited in every runtime: its own threads would take the processor from the one that is timed.
        with torch_threads(self._where.threads):
            self._unpruned = self._unpruned or self._prepare(self._graph.full)
            clock = self._where.resolved_runtime.clock
            return time_in_turns(structure, self._prepare(structure), self._unpruned, self._seconds, clock)

    def _prepare(self, structure: Structure) -> PieceTimer:
        return self._where.resolved_runtime.prepare_pieces(
            shrink(self._model, self._graph, structure, example=self._example).eval().cpu(),
            self._example,
            timed_layers(self._graph, self._layers, structure),
            device=self._where.device,
            threads=self._where.threads,
        )


def time_in_turns(
    structure: Structure,
    subject: PieceTimer,
    unpruned: PieceTimer,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> TimedStructure:
    """Time a structure and the unpruned network in turns, and return the seconds that most turns agree on.

    The median of the ratios of each turn counts, because a machine that is slower for a while is slower for both. That
    ratio is multiplied by the seconds that the unpruned network takes when little else runs.

    Args:
        structure: what `subject` is.
        subject: the network of the structure.
        unpruned: the unpruned network.
        seconds: how long to measure, about; up to `MAX_EXTENSION` times as long on a busy machine.
        clock: the current time in seconds.
    """
    calls = (unpruned.run, subject.run, unpruned.run_timed, subject.run_timed)
    turns = np.array(_timed_turns(calls, seconds, clock))
    pieces = np.array(subject.take_recorded()[-len(turns) :])
    unpruned_sums = np.array(unpruned.take_recorded()[-len(turns) :]).sum(axis=1)
    whole, unpruned_seconds = agreed_seconds(turns[:, 1], turns[:, 0])
    piece_seconds, unpruned_pieces = agreed_seconds(pieces, unpruned_sums[:, None])
    return TimedStructure(
        structure=tuple(structure),
        whole=float(whole),
        reference=unpruned_seconds,
        pieces=tuple(piece_seconds.tolist()),
        reference_pieces=unpruned_pieces,
        noise=noise_of(turns.tolist()),
    )


def agreed_seconds(subject: Values, unpruned: Values) -> tuple[Any, float]:
    """Return the seconds that most turns agree on: of a network or its pieces, and of the unpruned network.

    Args:
        subject: the seconds in each turn, one row each.
        unpruned: the seconds of the unpruned network in the same turns.
    """
    reference = float(np.quantile(unpruned, LEVEL_QUANTILE))
    return np.median(subject / unpruned, axis=0) * reference, reference


def _timed_turns(
    calls: tuple[Callable[[], object], ...], seconds: float, clock: Callable[[], float]
) -> list[list[float]]:
    """Return the seconds of each call in each turn; turns are added while the ratio of the first two is uncertain."""
    for _ in range(WARMUP):
        seconds_per_turn = sum(mean_seconds(call, 1, clock) for call in calls)
    count = int(np.clip(math.ceil(seconds / max(seconds_per_turn, 1e-9)), MIN_TURNS, MAX_TURNS))
    turns: list[list[float]] = []
    while not turns or (noise_of(turns) > QUIET_NOISE and len(turns) < MAX_EXTENSION * count):
        turns += [[mean_seconds(call, 1, clock) for call in calls] for _ in range(count)]
    return turns


def noise_of(turns: list[list[float]]) -> float:
    """Return the relative uncertainty of the ratio of the second column to the first."""
    lower, median, upper = np.quantile([turn[1] / turn[0] for turn in turns], [0.25, 0.5, 0.75])
    return float((upper - lower) / median / math.sqrt(len(turns)))


class MeasurementProgress:
    """Counts measurements, and reports now and then with the time that is left.

    Args:
        what: the plural of what is measured, such as "structures".
        total: how many are to be measured in all.
        done: how many an earlier call has measured.
    """

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self._what = what
        self._total = total
        self._done = done
        self._done_before = done
        self._start = time.monotonic()
        if done:
            report_progress(f"{done} of {total} {what} were done before")

    def step(self) -> None:
        """Count one more measurement."""
        self._done += 1
        every = max(1, self._total // PROGRESS_LINES)
        if self._done % every == 0 or self._done in (self._done_before + 1, self._total):
            report_progress(str(self))

    def __str__(self) -> str:
        elapsed = time.monotonic() - self._start
        left = elapsed / max(1, self._done - self._done_before) * (self._total - self._done)
        return f"{self._done}/{self._total} {self._what}, {elapsed:.0f} s so far, about {left:.0f} s left"
