"""ChannelGraph: which channels of a network must be removed together, as plain data.

A *unit* is the smallest thing that can be removed: one channel, or several that must be removed together. Units that
occur in the same tensors form a *group*, which is one coordinate of the paper's structure vector. Every dimension of a
tensor that holds channels has a *lane*: for each index of the dimension, the unit that it belongs to.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.elements import Activation, ChannelGroup, HardCodedSize, Layer, Tensor
from aacp.channels.lanes import Lane, to_runs
from aacp.channels.plain_graphs import graph_fields
from aacp.channels.structure import Structure
from aacp.disk.reading import read_json, reading_as
from aacp.disk.writing import replace_file
from aacp.errors import GraphMismatch, InvalidStructure
from aacp.user.notebook import html_table
from aacp.user.options import advice_of_many
from aacp.user.values import MAX_SHOWN, counted, shortened, shown

KeptUnits = dict[str, NDArray[np.int64]]  # the indices of the units that each free group keeps, by its name
# The same as users give it: for each free group a count (the first units stay), indices or a mask, in order or by name.
Kept = Structure | Mapping[str, Any] | Iterable[Any]
FORMAT = 1  # version of the JSON; raise it when the meaning of a field changes


@dataclass(frozen=True, eq=False)
class ChannelGraph:
    """The groups, layers, tensors and hard-coded sizes of one network, and the lanes that connect them."""

    model: str  # the name of the network's class
    groups: tuple[ChannelGroup, ...]
    lanes: tuple[Lane, ...]
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    sizes: tuple[HardCodedSize, ...] = ()
    activations: tuple[Activation, ...] = ()
    form: str = "module"  # what `shrink` returns: "module" (the same class) or "exported" (a graph of operators)
    notes: tuple[str, ...] = field(default=())  # what tracing could not analyse
    ties: tuple[tuple[str, ...], ...] = ()  # names of free groups that a search gives the same share of their widths
    parts: tuple[str, ...] = ()  # the submodules that were traced, if not the whole network was

    # -- groups and units ---------------------------------------------------------------------------------------------

    @cached_property
    def free(self) -> tuple[ChannelGroup, ...]:
        """The groups that may be pruned; a structure has one count for each, in this order."""
        return tuple(group for group in self.groups if group.frozen is None)

    @property
    def full(self) -> Structure:
        """The structure of the unpruned network (C in the paper)."""
        return Structure(group.width for group in self.free)

    @cached_property
    def unit_groups(self) -> NDArray[np.int64]:
        """The index of the group of each unit: units are numbered group after group."""
        return np.repeat(np.arange(len(self.groups)), [group.width for group in self.groups])

    @cached_property
    def free_units(self) -> NDArray[np.bool_]:
        """For each unit whether it may be pruned."""
        return np.isin(self.unit_groups, self._free_index)

    @cached_property
    def _slices(self) -> dict[str, slice]:
        ends = np.cumsum([group.width for group in self.groups]).tolist()
        return {group.name: slice(end - group.width, end) for group, end in zip(self.groups, ends, strict=True)}

    def slice_of(self, group: ChannelGroup) -> slice:
        """Where the units of a group are among all units."""
        return self._slices[group.name]

    @cached_property
    def _free_index(self) -> NDArray[np.int64]:
        return np.array([i for i, group in enumerate(self.groups) if group.frozen is None], dtype=np.int64)

    def freeze(self, reasons: Mapping[str, str]) -> ChannelGraph:
        """The same graph with more groups frozen, which leave their ties: a reason for each, by the group's name."""
        groups = tuple(
            replace(group, frozen=reasons[group.name]) if group.frozen is None and group.name in reasons else group
            for group in self.groups
        )
        free = {group.name for group in groups if group.frozen is None}
        ties = [tuple(name for name in tie if name in free) for tie in self.ties]
        return replace(self, groups=groups, ties=tuple(tie for tie in ties if len(tie) > 1))

    def state(self, group: ChannelGroup) -> str:
        """Whether a group may be pruned, for people: "free", what it is tied to, or why it is frozen."""
        if group.frozen is not None:
            return group.frozen
        others = [name for tie in self.ties if group.name in tie for name in tie if name != group.name]
        return f"free, tied to {', '.join(others)}" if others else "free"

    # -- producers ----------------------------------------------------------------------------------------------------

    def producers(self, group: ChannelGroup) -> tuple[Layer, ...]:
        """The layers whose outputs are channels of a group; a layer that is called twice is listed twice."""
        return tuple(self._producers.get(group.name, ()))

    def producer_names(self, group: ChannelGroup) -> tuple[str, ...]:
        """The names of the layers whose outputs are channels of a group, each once."""
        return tuple(dict.fromkeys(layer.name for layer in self.producers(group)))

    @property
    def producer_counts(self) -> tuple[int, ...]:
        """For each free group the number of its producers, at least 1; residual streams have several."""
        return tuple(max(1, len(self.producers(group))) for group in self.free)

    def channels_of(self, counts: Sequence[int]) -> list[int]:
        """The numbers of channels that the free groups keep, given numbers of units, which may be several channels."""
        return [count * group.unit_channels for group, count in zip(self.free, counts, strict=True)]

    @cached_property
    def _producers(self) -> dict[str, list[Layer]]:
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            if layer.output is not None:
                lane = self.lanes[layer.output]
                for group in np.unique(self.unit_groups[lane[lane >= 0]]):
                    found.setdefault(self.groups[group].name, []).append(layer)
        return found

    @property
    def free_share(self) -> float:
        """The share of all convolution output channels that may be pruned."""
        total = 0
        free = 0
        for layer in self.layers:
            if layer.is_convolution and layer.output is not None:
                lane = self.lanes[layer.output]
                total += len(lane)
                free += int(self.free_units[lane[lane >= 0]].sum())
        return free / total if total else 0.0

    # -- what a structure keeps ---------------------------------------------------------------------------------------

    @cached_property
    def lane_size_map(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Matrix and offset that map a structure to the kept size of every lane: sizes = matrix @ counts + offset."""
        matrix = np.zeros((len(self.lanes), len(self.groups)), dtype=np.int64)
        offset = np.zeros(len(self.lanes), dtype=np.int64)
        for row, lane in enumerate(self.lanes):
            units = lane[lane >= 0]
            offset[row] = len(lane) - len(units)
            matrix[row] = np.bincount(self.unit_groups[units], minlength=len(self.groups))
        widths = np.array([group.width for group in self.groups], dtype=np.int64)
        if len(self.groups):
            # All units of a group occur equally often in a lane; that is what makes them a group.
            assert not (matrix % widths).any()
            matrix //= widths
        frozen = np.setdiff1d(np.arange(len(self.groups)), self._free_index)
        offset += matrix[:, frozen] @ widths[frozen]
        return matrix[:, self._free_index], offset

    def lane_sizes(self, structures: ArrayLike) -> NDArray[np.int64]:
        """The kept size of every lane, for one structure (a vector) or many (a matrix with one structure per row)."""
        matrix, offset = self.lane_size_map
        # numpy multiplies integers slowly. Doubles are exact here: a size is far below 2^53.
        products = self.valid_counts(structures).astype(np.float64) @ matrix.T.astype(np.float64)
        sizes: NDArray[np.int64] = products.astype(np.int64) + offset
        return sizes

    def valid_counts(self, structures: ArrayLike) -> NDArray[np.int64]:
        """One structure (a vector) or many (a matrix, one structure a row) as an array; rejects impossible counts."""
        counts = np.asarray(structures, dtype=np.int64)
        if counts.shape[-1:] != (len(self.free),):
            raise self._wrong_length(counts.shape[-1] if counts.ndim else 1)
        if counts.size and (counts.min() < 1 or (counts > np.asarray(self.full)).any()):
            raise InvalidStructure(
                "A structure keeps at least 1 unit of each group and at most all of them, but got "
                f"{shown(counts.tolist())}. graph.full holds the largest counts."
            )
        return counts

    def kept_units(self, kept: Kept) -> NDArray[np.bool_]:
        """A mask over all units (True: the unit stays).

        Args:
            kept: what each free group keeps.
        """
        choices = self._by_name(kept)
        mask = np.ones(len(self.unit_groups), dtype=bool)
        for group in self.free:
            if group.name in choices:
                mask[self.slice_of(group)] = group.kept_units(choices[group.name])
        return mask

    def kept_indices(self, units: NDArray[np.bool_]) -> KeptUnits:
        """Of a mask over all units, the indices of the units that each free group keeps, by its name."""
        return {group.name: np.flatnonzero(units[self.slice_of(group)]) for group in self.free}

    def _by_name(self, kept: Kept) -> Mapping[str, Any]:
        if isinstance(kept, Mapping):
            self._require_free(kept)
            return kept
        if isinstance(kept, str) or not isinstance(kept, Iterable):
            raise InvalidStructure(f"{kept!r} does not say what to keep. Give a structure, a list, or a dictionary.")
        values = list(kept)
        if len(values) != len(self.free):
            raise self._wrong_length(len(values))
        return {group.name: value for group, value in zip(self.free, values, strict=True)}

    def _require_free(self, names: Iterable[str]) -> None:
        known = {group.name: group for group in self.groups}
        for name in names:
            if name not in known:
                advice = advice_of_many(name, known, "print(graph)")
                raise InvalidStructure(f"This graph has no group {name!r}. {advice}")
            if (reason := known[name].frozen) is not None:
                raise InvalidStructure(f"Group {name!r} is frozen: {reason}. Do not say what to keep of it.")

    def _wrong_length(self, length: int) -> InvalidStructure:
        return InvalidStructure(
            f"A structure of this graph has {counted(len(self.free), 'count')}, but got {length}. "
            "Give one count per free group, in the order of graph.free."
        )

    # -- JSON and text ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Lists and dictionaries of plain values; members as text, lanes as runs [first, step, count]."""
        data: dict[str, Any] = {"format": FORMAT, "model": self.model, "form": self.form, "notes": list(self.notes)}
        data["groups"] = [{**asdict(group), "members": list(map(str, group.members))} for group in self.groups]
        data["ties"] = [list(tie) for tie in self.ties]
        data["parts"] = list(self.parts)
        data["lanes"] = [to_runs(lane) for lane in self.lanes]
        for key in ("layers", "tensors", "sizes", "activations"):
            data[key] = [asdict(item) for item in getattr(self, key)]
        return data

    @classmethod
    def from_json(cls, data: Any) -> ChannelGraph:
        """The graph that `to_json` was called on; data that do not describe a graph are rejected."""
        if isinstance(data, Mapping) and data.get("format") != FORMAT:
            raise GraphMismatch(
                f"This graph has format {shown(data.get('format'))}, but this version of aacp reads format {FORMAT}. "
                "Trace the network again."
            )
        try:
            return cls(**graph_fields(data))
        except ValueError as error:
            raise GraphMismatch(f"This is not a channel graph: {error}. Trace the network again.") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a JSON file."""
        replace_file(path, json.dumps(self.to_json()).encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChannelGraph:
        """Read a graph from a JSON file."""
        with reading_as(GraphMismatch):
            data = read_json(path, "Trace the network again.")
        try:
            return cls.from_json(data)
        except GraphMismatch as error:
            raise GraphMismatch(f"{path}: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelGraph) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """A table of the groups: their widths, their producers, and why frozen ones are frozen."""
        heads = ("group", "channels", "layers", "state")
        rows = [(group.name, _width(group), self._layers(group), self.state(group)) for group in self.groups]
        widths = [min(MAX_SHOWN, max(len(row[column]) for row in [heads, *rows])) for column in range(3)]
        lines = [self._summary()]
        for row in [heads, *rows]:
            cells = [shortened(cell).ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
            lines.append("  ".join([*cells, row[3]]))
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<ChannelGraph {self._summary()}>"

    def _repr_html_(self) -> str:
        """The table of the groups, for notebooks."""
        rows = [(group.name, _width(group), self._layers(group), self.state(group)) for group in self.groups]
        return html_table(self._summary(), ("group", "channels", "layers", "state"), rows)

    def _summary(self) -> str:
        """The cost of the whole network, and the share of it that may be pruned."""
        macs = sum(
            layer.macs_per_channel * math.prod(len(self.lanes[lane]) for lane in layer.macs_lanes)
            for layer in self.layers
        )
        parameters = sum(math.prod(tensor.shape) for tensor in self.tensors if tensor.is_parameter)
        return (
            f"{self.model}: {macs:,} MACs, {parameters:,} parameters; {len(self.free)} of {len(self.groups)} groups "
            f"free, {self.free_share:.1%} of convolution channels"
        )

    def _layers(self, group: ChannelGroup) -> str:
        return ", ".join(self.producer_names(group)) or group.name


def _width(group: ChannelGroup) -> str:
    return str(group.width) if group.unit_channels == 1 else f"{group.width} x {group.unit_channels}"
