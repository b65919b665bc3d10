"""LatencyTable: predicts the seconds of a structure from measured structures of the same network.

A piece is a layer and everything that runs after it up to the next one. Pieces are timed inside whole structures that
are spread over the search space. A prediction is the sum of a structure's pieces, calibrated by the times of whole
structures. Some structures are held out to measure the error of the predictions.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.graph import ChannelGraph
from aacp.cost.analytic import Cost
from aacp.cost.quantities import amount
from aacp.disk.reading import read_json, reading_as
from aacp.disk.records import Count, Seconds, read_fields, require
from aacp.errors import DeviceMismatch, GraphMismatch, InvalidOption, InvalidStructure
from aacp.latency.calibration import Correction, PredictionError, Trend, robust_line
from aacp.latency.judging import DISTURBED, MAX_NOISE, QUIET_NOISE, inconclusive, shortcomings, unsteadiness
from aacp.latency.lookup import Lookup
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure
from aacp.runs.folder import RunFolder
from aacp.runs.provenance import machine
from aacp.user.values import counted

FORMAT = 1  # version of the JSON format; raise it when a field changes its meaning
MEASURE = "Measure one."  # what to do about a file that holds no table
# If no measured structure takes less than this share of the unpruned network's time, pruning channels cannot make the
# network much faster under these conditions, and the table carries a warning. Chosen by hand.
SMALLEST_USEFUL_SHARE = 0.7

_logger = logging.getLogger("aacp")


@dataclass(frozen=True, eq=False)
class LatencyTable:
    """Measured structures of one network, and the predictions made from them.

    Args:
        model: the class name of the network.
        conditions: what the measurements depend on besides the network.
        names: the names of the groups.
        choices: the counts of each group in the search space that was measured.
        pieces: the pieces of the network.
        measured: the structures that the predictions are fitted to.
        held_out: the structures that the error of the predictions is measured on.
        corrections: structures that were measured later, with their seconds.
        accepts_noise: whether the user accepted a table that cannot decide anything.
        elsewhere: whether it was measured on a device that is not here, and holds there alone.
    """

    model: str
    conditions: MeasurementConditions = field(metadata={"name": "setting"})  # its name in the file
    names: tuple[str, ...]
    choices: tuple[tuple[Count, ...], ...]
    pieces: tuple[Piece, ...]
    measured: tuple[TimedStructure, ...]
    held_out: tuple[TimedStructure, ...]
    corrections: tuple[tuple[tuple[Count, ...], Seconds], ...] = ()
    accepts_noise: bool = False
    elsewhere: bool = False

    def __str__(self) -> str:
        return (
            f"{self.model}: {amount(self.reference, 's')} unpruned, {self.conditions}; "
            f"{counted(len(self.pieces), 'piece')} in {counted(len(self.measured), 'structure')}; {self.error}"
        ) + (f"; it cannot decide anything: {self.problem}" if self.problem else "")

    # -- prediction ---------------------------------------------------------------------------------------------------

    def cost(self, graph: ChannelGraph, *, elsewhere: bool = False) -> Cost:
        """Return the latency of structures as a cost.

        Args:
            graph: the channel graph that the table was measured with; groups may have been frozen since.
            elsewhere: whether the table may be of another machine than this one.
        """
        if not (elsewhere or self.elsewhere) and machine() != self.conditions.machine:
            raise DeviceMismatch(
                f"The latency table was measured on {self.conditions.machine!r}, but this is {machine()!r}. Measure "
                "here, or pass elsewhere=True to prune here for that machine."
            )
        columns = self._columns(graph)
        return Cost("latency", "s", self.reference, lambda kept: self.seconds(self._with_frozen(kept, columns)))

    def seconds(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Predict the seconds of structures of the measured graph, one per row."""
        rows = np.atleast_2d(np.asarray(counts, dtype=np.int64))
        self._require_measured(rows)
        return self._calibrated(rows) * self._correction(rows)

    @cached_property
    def reference(self) -> float:
        """The seconds of the unpruned network."""
        return float(np.median([run.reference for run in (*self.measured, *self.held_out)]))

    @cached_property
    def error(self) -> PredictionError:
        """The error of the predictions on the structures that were held out."""
        noise = float(np.median([run.noise for run in (*self.held_out, *self.measured)]))
        return PredictionError.of(self._calibrated(self._rows(self.held_out)), self._wholes(self.held_out), noise)

    @property
    def noise(self) -> float:
        """The relative uncertainty of one measurement."""
        return self.error.noise

    @cached_property
    def shortest(self) -> float:
        """The seconds of the fastest measured structure, as a share of the unpruned network's."""
        return min(run.whole / run.reference for run in self.measured)

    @property
    def warning(self) -> str | None:
        """A sentence that says what to do if pruning channels hardly makes the network faster here; None otherwise."""
        if self.shortest < SMALLEST_USEFUL_SHARE:
            return None
        found = f"The fastest structure took {self.shortest:.0%} of the unpruned network's time"
        if self.unsteadiness:
            return f"{found}, but {self.unsteadiness}, {DISTURBED}. Close other programs, and measure to another file."
        return (
            f"{found}: most of the time here is spent on starting layers, not on channels. Measure with a larger batch "
            "or another runtime, or remove layers."
        )

    @property
    def unsteadiness(self) -> str:
        """How far the times of the unpruned network lie apart, as half a sentence; empty if the machine was steady."""
        times = [run.reference for run in (*self.measured, *self.held_out)]
        return unsteadiness(*np.quantile(times, [0.1, 0.9]).tolist())

    @property
    def disturbance(self) -> str:
        """What shows that the machine was not quiet, as half a sentence with numbers; empty if nothing does."""
        noisiest = max(run.noise for run in (*self.measured, *self.held_out))
        is_noisy = self.noise > QUIET_NOISE or noisiest > MAX_NOISE
        return self.unsteadiness or (f"the time of one structure is uncertain by {noisiest:.1%}" if is_noisy else "")

    @cached_property
    def problem(self) -> str:
        """Why the table cannot decide anything, with numbers; empty if it is good enough."""
        return "; ".join(shortcomings(self.error, depends_on_widths=self.shortest < SMALLEST_USEFUL_SHARE))

    def require_decisive(self) -> None:
        """Reject a table that cannot decide anything, unless the user accepted it when it was measured."""
        if self.problem and not self.accepts_noise:
            raise inconclusive(self.problem, self.disturbance, self.elsewhere)
        if self.problem:
            _logger.warning("The latency table cannot decide anything, but was accepted: %s.", self.problem)

    def corrected(self, graph: ChannelGraph, structures: Sequence[ArrayLike], seconds: Sequence[float]) -> LatencyTable:
        """Return the table with later measurements of whole structures.

        The predictions follow these measurements fully at the measured structures, and less far away from them.

        Args:
            graph: the channel graph of the structures.
            structures: structures that were measured.
            seconds: the seconds of each.
        """
        if len(structures) != len(seconds) or not all(0 < value < math.inf for value in seconds):
            raise InvalidOption(
                f"The seconds of {counted(len(structures), 'structure')} are {list(seconds)}. Give one positive number "
                "for each."
            )
        columns = self._columns(graph)
        kept = np.array([np.asarray(structure) for structure in structures], dtype=np.int64).reshape(-1, len(columns))
        counts = self._with_frozen(kept, columns).tolist()
        added = [(tuple(row), float(value)) for row, value in zip(counts, seconds, strict=True)]
        return replace(self, corrections=(*self.corrections, *added))

    def _with_frozen(self, kept: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows of counts of some groups as rows of all groups of the table; the others keep everything.

        Args:
            kept: the counts of some groups, one row for each structure.
            columns: where each of these groups lies in the table.
        """
        counts = np.repeat(self._widest[None], len(kept), axis=0)
        counts[:, columns] = kept
        return counts

    def _calibrated(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._summed(rows) * self._trend(rows)

    def _summed(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predict the seconds of whole structures from the sums of their pieces."""
        slope, constant = self._line
        return np.asarray(slope * self._lookup(rows) + constant)

    @cached_property
    def _lookup(self) -> Lookup:
        """The sum of all pieces, scaled to the median speed of the machine during the measurements."""
        usual = np.median([run.reference_pieces for run in self.measured])
        seconds = np.array([np.array(run.pieces) * usual / run.reference_pieces for run in self.measured])
        return Lookup.fit(self.pieces, self.names, self.choices, self._rows(self.measured), seconds)

    @cached_property
    def _line(self) -> tuple[float, float]:
        """Slope and constant from the sum of the pieces to the whole structure."""
        return robust_line(self._lookup(self._rows(self.measured)), self._wholes(self.measured))

    @cached_property
    def _trend(self) -> Trend:
        rows = self._rows(self.measured)
        return Trend.fit(rows, np.log(self._wholes(self.measured) / self._summed(rows)))

    @cached_property
    def _correction(self) -> Correction:
        rows = np.array([counts for counts, _ in self.corrections], dtype=np.int64).reshape(-1, len(self.names))
        found = np.array([seconds for _, seconds in self.corrections], dtype=np.float64)
        return Correction.of(rows, np.log(found / self._calibrated(rows)), self.noise)

    def _rows(self, runs: Sequence[TimedStructure]) -> NDArray[np.int64]:
        """Return the counts of measured structures, one per row."""
        return np.array([run.structure for run in runs], dtype=np.int64).reshape(-1, len(self.names))

    def _wholes(self, runs: Sequence[TimedStructure]) -> NDArray[np.float64]:
        """Return the seconds of whole structures, scaled to the median speed of the machine."""
        return np.array([run.whole / run.reference * self.reference for run in runs], dtype=np.float64)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _columns(self, graph: ChannelGraph) -> NDArray[np.int64]:
        """Return the column of each free group of a graph in the table; reject a graph of another network."""
        measured = {piece.layer: piece.output_size for piece in self.pieces}
        known = {layer.name: tuple(layer.output_size) for layer in graph.layers}
        for name, size in measured.items():
            if known.get(name) != size:
                raise GraphMismatch(
                    f"The latency table holds layer {name!r} with outputs of {_times(size)}, but the graph has "
                    f"{'no such layer' if name not in known else _times(known[name])}. Measure this network."
                )
        widest = {name: choice[-1] for name, choice in zip(self.names, self.choices, strict=True)}
        for group in graph.free:
            if widest.get(group.name) != group.width:
                raise GraphMismatch(
                    f"The latency table has {widest.get(group.name, 'no')} units in group {group.name!r}, but the "
                    f"graph has {group.width} that may be pruned. Measure this graph."
                )
        return np.array([self.names.index(group.name) for group in graph.free], dtype=np.int64)

    @cached_property
    def _least(self) -> NDArray[np.int64]:
        return np.array([choice[0] for choice in self.choices], dtype=np.int64)

    @cached_property
    def _widest(self) -> NDArray[np.int64]:
        return np.array([choice[-1] for choice in self.choices], dtype=np.int64)

    def _require_measured(self, rows: NDArray[np.int64]) -> None:
        outside = (rows < self._least) | (rows > self._widest)
        if outside.any():
            row, group = np.argwhere(outside)[0]
            raise InvalidStructure(
                f"The latency table covers {self._least[group]} to {self._widest[group]} units of group "
                f"{self.names[group]!r}, but {rows[row, group]} were requested. Measure the space of this structure."
            )

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["setting"] = data.pop("conditions")
        # The error of few structures may have no rank correlation: JSON has no NaN.
        error = {name: value if math.isfinite(value) else None for name, value in asdict(self.error).items()}
        return {"format": FORMAT, **data, "error": error}

    @classmethod
    def from_json(cls, data: Any) -> LatencyTable:
        """The table that `to_json` was called on; data that no prediction can be fitted to raise a ValueError."""
        require(isinstance(data, Mapping), "it is not an object")
        require(data.get("format") == FORMAT, f"its format is {data.get('format')!r:.40}, not {FORMAT}")
        table = cls(**read_fields(cls, data))
        table.require_predictions()
        return table

    def require_predictions(self) -> None:
        """Reject data that are well formed, but that no prediction can be fitted to."""
        self._require_consistent()
        try:
            with np.errstate(all="ignore"):
                found = [*self.seconds([self._least, self._widest]), self.reference, self.error.noise]
        except (ArithmeticError, LookupError, np.linalg.LinAlgError, MemoryError) as error:
            raise ValueError(f"no prediction can be fitted to it ({type(error).__name__})") from error
        if not np.isfinite(found).all():
            raise ValueError("its predictions are not finite")

    def _require_consistent(self) -> None:
        """Reject parts that do not fit each other."""
        groups = len(self.names)
        require(groups > 0 and len(set(self.names)) == groups, "its names are not those of different groups")
        require(len(self.choices) == groups, f"it does not have choices for {groups} groups")
        for position, choice in enumerate(self.choices):
            rises = bool(choice) and all(low < high for low, high in itertools.pairwise(choice))
            require(rises, f"choices[{position}] is not a list of rising counts")
        require(bool(self.pieces), "it has no pieces")
        for position, piece in enumerate(self.pieces):
            require(piece.groups <= set(self.names), f"pieces[{position}] names a group that does not exist")
        require(bool(self.measured), "it holds no measured structure")
        for part, runs in (("measured", self.measured), ("held_out", self.held_out)):
            for position, run in enumerate(runs):
                place = f"{part}[{position}]"
                require(len(run.structure) == groups, f"{place} is not a structure of {groups} groups")
                has_all = len(run.pieces) == len(self.pieces)
                require(has_all, f"{place} does not have the seconds of {len(self.pieces)} pieces")
        for position, (counts, _) in enumerate(self.corrections):
            require(len(counts) == groups, f"corrections[{position}] is not a structure of {groups} groups")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file; the file appears as a whole or not at all."""
        RunFolder(Path(path).parent).write_json(Path(path).name, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], conditions: MeasurementConditions | None = None) -> LatencyTable:
        """Read a table from a file; reject it if it was not measured under the given conditions."""
        with reading_as(GraphMismatch):
            data = read_json(path, MEASURE)
        try:
            table = cls.from_json(data)
        except (ValueError, RuntimeWarning) as error:
            raise GraphMismatch(f"{path} does not hold a latency table: {error}. {MEASURE}") from error
        if conditions is not None:
            table.conditions.require(conditions)
        return table


def _times(size: Sequence[int]) -> str:
    return "x".join(map(str, size)) or "no extent"
