"""LatencyTable: seconds of a network's pieces by their widths, on one device, runtime, precision, batch and threads.

A *piece* is a layer and all that runs after it up to the next one. Pieces were timed inside whole structures, spread
over the space; a structure's seconds are predicted as the sum of its pieces, and that sum is held against the whole
structures. Some structures were kept out of all that, to say how far the table errs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels import ChannelGraph
from aacp.cost.analytic import Cost
from aacp.errors import DeviceMismatch, GraphMismatch, InvalidOption, InvalidStructure
from aacp.latency.calibration import Correction, PredictionError, Trend, robust_line
from aacp.latency.lookup import Lookup
from aacp.latency.pieces import MeasurementConditions, Piece, TimedStructure
from aacp.runs.folder import RunFolder
from aacp.runs.provenance import machine

FORMAT = 1  # of the JSON; raise it when a field changes its meaning
HARDLY_FASTER = 0.7  # of the unpruned network's seconds: if no structure takes less, something else than widths decides


@dataclass(frozen=True, eq=False)
class LatencyTable:
    """Seconds of one network's pieces, and what is predicted from them."""

    model: str
    conditions: MeasurementConditions
    names: tuple[str, ...]  # of the groups
    choices: tuple[tuple[int, ...], ...]  # of the space that was measured
    pieces: tuple[Piece, ...]
    measured: tuple[TimedStructure, ...]  # what the prediction is made of
    held_out: tuple[TimedStructure, ...]  # what it is judged by
    corrections: tuple[tuple[tuple[int, ...], float], ...] = ()  # structures and their seconds, measured later

    def __str__(self) -> str:
        return (
            f"{self.model}: {1e3 * self.reference:.3g} ms unpruned, {self.conditions}; {len(self.pieces)} pieces in "
            f"{len(self.measured)} structures; {self.error}"
        )

    # -- prediction ---------------------------------------------------------------------------------------------------

    def cost(self, graph: ChannelGraph, *, elsewhere: bool = False) -> Cost:
        """The seconds of structures of a graph; on another machine than the table's only if `elsewhere`."""
        if not elsewhere and machine() != self.conditions.machine:
            raise DeviceMismatch(
                f"The latency table was measured on {self.conditions.machine!r}, but this is {machine()!r}. Measure "
                "here, or pass elsewhere=True to prune here for that machine."
            )
        columns = self._columns(graph)
        widest, order = np.array([choice[-1] for choice in self.choices], dtype=np.int64), np.argsort(columns)

        def rows(kept: NDArray[np.int64]) -> NDArray[np.float64]:
            if len(columns) == len(widest):
                return self.seconds(kept[:, order])
            counts = np.tile(widest, (len(kept), 1))
            counts[:, columns] = kept
            return self.seconds(counts)

        return Cost("latency", "s", self.reference, rows)

    def seconds(self, counts: ArrayLike) -> NDArray[np.float64]:
        """The seconds of structures of the measured graph, one a row."""
        rows = np.atleast_2d(np.asarray(counts, dtype=np.int64))
        self._require_measured(rows)
        return self._calibrated(rows) * self._correction(rows)

    @cached_property
    def reference(self) -> float:
        """The seconds of the unpruned network."""
        return float(np.median([run.reference for run in (*self.measured, *self.held_out)]))

    @cached_property
    def error(self) -> PredictionError:
        """How far predictions are from what was measured of structures that played no part in them."""
        rows = np.array([run.structure for run in self.held_out], dtype=np.int64).reshape(-1, len(self.names))
        noise = float(np.median([run.noise for run in (*self.held_out, *self.measured)]))
        return PredictionError.of(self._calibrated(rows), self._wholes(self.held_out), noise)

    @property
    def noise(self) -> float:
        """The relative uncertainty of one measurement."""
        return self.error.noise

    @cached_property
    def shortest(self) -> float:
        """The share of the unpruned network's seconds that the fastest structure took."""
        return min(run.whole / run.reference for run in self.measured)

    @property
    def warning(self) -> str | None:
        """What to do if pruning can hardly make the network faster in this setting."""
        if self.shortest < HARDLY_FASTER:
            return None
        return (
            f"The fastest structure took {self.shortest:.0%} of the unpruned network's time: not widths cost it here, "
            "but starting each of its layers. Measure with a larger batch or another runtime, or remove layers."
        )

    def corrected(self, graph: ChannelGraph, structures: Sequence[ArrayLike], seconds: Sequence[float]) -> LatencyTable:
        """The table with later measurements of whole structures believed, the more so the nearer a structure is."""
        if len(structures) != len(seconds) or not all(0 < value < math.inf for value in seconds):
            raise InvalidOption(
                f"{len(structures)} structures were given with the seconds {list(seconds)}. Give one positive number "
                "for each."
            )
        columns, added = self._columns(graph), []
        for structure, value in zip(structures, seconds, strict=True):
            counts = np.array([choice[-1] for choice in self.choices])
            counts[columns] = np.asarray(structure)
            added.append((tuple(counts.tolist()), float(value)))
        return replace(self, corrections=(*self.corrections, *added))

    def _calibrated(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._summed(rows) * self._trend(rows)

    def _summed(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The sum of the pieces, as a whole."""
        slope, constant = self._line
        return np.asarray(slope * self._lookup(rows) + constant)

    @cached_property
    def _lookup(self) -> Lookup:
        """The sum of all pieces: each as measured while the unpruned network took what it takes at the median."""
        usual = np.median([run.reference_pieces for run in self.measured])
        seconds = np.array([np.array(run.pieces) * usual / run.reference_pieces for run in self.measured])
        widths = [[(width.fixed, dict(width.groups)) for width in piece.widths] for piece in self.pieces]
        counts = np.array([run.structure for run in self.measured], dtype=np.int64)
        return Lookup.fit([piece.kind for piece in self.pieces], widths, self.names, self.choices, counts, seconds)

    @cached_property
    def _line(self) -> tuple[float, float]:
        """How whole structures follow from the sum of their pieces."""
        rows = np.array([run.structure for run in self.measured], dtype=np.int64)
        return robust_line(self._lookup(rows), self._wholes(self.measured))

    @cached_property
    def _trend(self) -> Trend:
        rows = np.array([run.structure for run in self.measured], dtype=np.int64)
        return Trend.fit(rows, np.log(self._wholes(self.measured) / self._summed(rows)))

    @cached_property
    def _correction(self) -> Correction:
        rows = np.array([counts for counts, _ in self.corrections], dtype=np.int64).reshape(-1, len(self.names))
        found = np.array([seconds for _, seconds in self.corrections], dtype=np.float64)
        return Correction.of(rows, np.log(found / self._calibrated(rows)), self.noise)

    def _wholes(self, runs: Sequence[TimedStructure]) -> NDArray[np.float64]:
        """Seconds as they would have been while the unpruned network took what it takes at the median."""
        return np.array([run.whole / run.reference * self.reference for run in runs], dtype=np.float64)

    # -- what it may be used for --------------------------------------------------------------------------------------

    def _columns(self, graph: ChannelGraph) -> NDArray[np.int64]:
        """The place of each free group of a graph in the table; a graph of another network is refused."""
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
                    f"The latency table has {widest.get(group.name, 'no')} channels in group {group.name!r}, but the "
                    f"graph has {group.width} that may be pruned. Measure this graph."
                )
        return np.array([self.names.index(group.name) for group in graph.free], dtype=np.int64)

    @cached_property
    def _least(self) -> NDArray[np.int64]:
        return np.array([choice[0] for choice in self.choices], dtype=np.int64)

    def _require_measured(self, rows: NDArray[np.int64]) -> None:
        if (rows < self._least).any():
            _, group = np.argwhere(rows < self._least)[0]
            raise InvalidStructure(
                f"The latency table covers {self._least[group]} to {self.choices[group][-1]} channels of group "
                f"{self.names[group]!r}, but {rows[:, group].min()} were asked for. Measure with this pruning step."
            )

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["setting"] = data.pop("conditions")  # the name of this field in the file format
        return {"format": FORMAT, **data, "error": asdict(self.error)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LatencyTable:
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT}")
        pieces = tuple(map(Piece.from_json, data["pieces"]))
        runs = {part: tuple(map(TimedStructure.from_json, data[part])) for part in ("measured", "held_out")}
        corrections = tuple((tuple(counts), float(seconds)) for counts, seconds in data["corrections"])
        conditions = MeasurementConditions(**data["setting"])
        choices = tuple(map(tuple, data["choices"]))
        return cls(data["model"], conditions, tuple(data["names"]), choices, pieces, **runs, corrections=corrections)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table, as a whole or not at all."""
        RunFolder(Path(path).parent).write_json(Path(path).name, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], conditions: MeasurementConditions | None = None) -> LatencyTable:
        """The table in a file, refused if it was not measured in the given setting."""
        try:
            table = cls.from_json(json.loads(Path(path).read_text()))
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise GraphMismatch(f"{path} does not hold a latency table: {error}. Measure again.") from error
        if conditions is not None:
            table.conditions.require(conditions)
        return table


def _times(size: Sequence[int]) -> str:
    return "x".join(map(str, size)) or "no extent"
