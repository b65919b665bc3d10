"""ChannelGraph: which channels of a network live or die together, as plain data.

A *unit* is the smallest thing that can be removed: one channel, or several that must go together. Units that occur
in the same tensors form a *group*, one coordinate of the paper's structure vector. Every tensor dimension that holds
channels is described by a *lane*: for each of its indices the unit it belongs to, or -1 if it always stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.errors import GraphMismatch, InvalidStructure
from aacp.lanes import Lane, from_runs, to_runs
from aacp.structure import Structure

FORMAT = 1  # of the JSON; raise it when a field changes its meaning


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that several layers keep or drop together; if it may not be pruned, it holds the reason."""

    name: str
    width: int  # in units
    unit_channels: int  # channels that one unit holds in the layer the group is named after
    members: tuple[str, ...]  # "conv1.weight[0]": each tensor dimension the group's channels lie in
    frozen: str | None = None


@dataclass(frozen=True)
class Layer:
    """One multiplication of activations: a convolution, a linear layer or a matrix product.

    It costs `macs_per_channel` times the number of kept indices of each lane in `macs_lanes`.
    """

    name: str
    kind: str
    kernel: tuple[int, ...]
    output_size: tuple[int, ...]
    input: int | None  # lane of the channels that go in
    output: int | None  # lane of the channels that come out
    macs_per_channel: int
    macs_lanes: tuple[int, ...]

    @property
    def is_convolution(self) -> bool:
        return self.kind.startswith("conv")


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer, and the lane of each of its dimensions (None: the dimension never changes)."""

    name: str
    shape: tuple[int, ...]
    lanes: tuple[int | None, ...]
    is_parameter: bool
    element_bytes: int = 4


@dataclass(frozen=True)
class HardCodedSize:
    """A number inside a module that follows the width of a lane: `times` x kept / `over`.

    `path` leads from the module to the number: an attribute name, then keys or indices, or a closure variable.
    """

    module: str
    path: tuple[str | int, ...]
    lane: int
    times: int = 1
    over: int = 1


@dataclass(frozen=True)
class Activation:
    """A tensor the network makes: `bytes_per_channel` x kept of each lane, alive from step `born` to step `dies`."""

    bytes_per_channel: int
    lanes: tuple[int, ...]
    born: int
    dies: int


@dataclass(frozen=True, eq=False)
class ChannelGraph:
    """Groups, layers, tensors and hard-coded sizes of one network, and the lanes that join them."""

    model: str
    groups: tuple[ChannelGroup, ...]
    lanes: tuple[Lane, ...]
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    sizes: tuple[HardCodedSize, ...] = ()
    activations: tuple[Activation, ...] = ()
    form: str = "module"  # what `shrink` returns: "module" (same class) or "exported" (a graph module)
    notes: tuple[str, ...] = field(default=())  # what tracing could not follow, in words

    # -- groups and units ---------------------------------------------------------------------------------------------

    @cached_property
    def free(self) -> tuple[ChannelGroup, ...]:
        """The groups a structure has a coordinate for, in order."""
        return tuple(group for group in self.groups if group.frozen is None)

    @property
    def full(self) -> Structure:
        """The unpruned structure C."""
        return Structure(group.width for group in self.free)

    @property
    def makers(self) -> tuple[int, ...]:
        """For each free group, how many layers make its channels: several make those of a residual stream."""
        counts = np.zeros(len(self.groups), dtype=np.int64)
        for layer in self.layers:
            if layer.output is not None:
                lane = self.lanes[layer.output]
                counts[np.unique(self.unit_groups[lane[lane >= 0]])] += 1
        return tuple(np.maximum(1, counts[self._free_index]).tolist())

    @cached_property
    def unit_groups(self) -> NDArray[np.int64]:
        """The index of the group each unit belongs to: units are numbered group after group."""
        return np.repeat(np.arange(len(self.groups)), [group.width for group in self.groups])

    @cached_property
    def _free_index(self) -> NDArray[np.int64]:
        return np.array([i for i, group in enumerate(self.groups) if group.frozen is None], dtype=np.int64)

    @cached_property
    def counting(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Matrix and offset that turn a structure into the kept size of every lane: sizes = matrix @ kept + offset."""
        matrix = np.zeros((len(self.lanes), len(self.groups)), dtype=np.int64)
        offset = np.zeros(len(self.lanes), dtype=np.int64)
        for row, lane in enumerate(self.lanes):
            units = lane[lane >= 0]
            offset[row] = len(lane) - len(units)
            matrix[row] = np.bincount(self.unit_groups[units], minlength=len(self.groups))
        widths = np.array([group.width for group in self.groups], dtype=np.int64)
        if len(self.groups):
            # Each unit of a group occurs equally often in a lane: that is what makes it a group.
            assert not (matrix % widths).any()
            matrix //= widths
        frozen = np.setdiff1d(np.arange(len(self.groups)), self._free_index)
        offset += matrix[:, frozen] @ widths[frozen]
        return matrix[:, self._free_index], offset

    def lane_sizes(self, structures: ArrayLike) -> NDArray[np.int64]:
        """Kept indices of every lane, for one structure (a vector) or many (a matrix, one structure a row)."""
        matrix, offset = self.counting
        sizes: NDArray[np.int64] = self.valid_counts(structures) @ matrix.T + offset
        return sizes

    def valid_counts(self, structures: ArrayLike) -> NDArray[np.int64]:
        """One structure (a vector) or many (a matrix, one structure a row) as an array; rejects impossible counts."""
        kept = np.asarray(structures, dtype=np.int64)
        if kept.shape[-1:] != (len(self.free),):
            raise InvalidStructure(
                f"A structure of this graph has {len(self.free)} counts, but got {kept.shape[-1] if kept.ndim else 1}. "
                "Give one count per free group, in the order of graph.free."
            )
        if kept.size and (kept.min() < 1 or (kept > np.asarray(self.full)).any()):
            raise InvalidStructure(
                "A structure keeps at least 1 channel of each group, and no more than there are, but got "
                f"{_short(kept)}. graph.full is the most."
            )
        return kept

    def kept_units(self, kept: Structure | Mapping[str, Any] | Iterable[Any]) -> NDArray[np.bool_]:
        """A mask over all units from counts (the first ones stay) or indices, per free group in order or by name."""
        choices = self._by_name(kept)
        mask = np.ones(len(self.unit_groups), dtype=bool)
        start = 0
        for group in self.groups:
            if group.name in choices:
                mask[start : start + group.width] = _chosen(group, choices[group.name])
            start += group.width
        return mask

    def _by_name(self, kept: Structure | Mapping[str, Any] | Iterable[Any]) -> Mapping[str, Any]:
        if isinstance(kept, Mapping):
            known = {group.name: group for group in self.groups}
            for name in kept:
                if name not in known:
                    raise InvalidStructure(f"There is no group {name!r} in this graph. print(graph) lists them.")
                if (reason := known[name].frozen) is not None:
                    raise InvalidStructure(f"Group {name!r} is frozen: {reason}. Leave it out of what is kept.")
            return kept
        if isinstance(kept, str) or not isinstance(kept, Iterable):
            raise InvalidStructure(f"{kept!r} does not say what to keep. Give a structure, a list, or a dictionary.")
        values = list(kept)
        if len(values) != len(self.free):
            raise InvalidStructure(
                f"A structure of this graph has {len(self.free)} counts, but got {len(values)}. "
                "Give one count per free group, in the order of graph.free."
            )
        return {group.name: value for group, value in zip(self.free, values, strict=True)}

    def freeze(self, reasons: Mapping[str, str]) -> ChannelGraph:
        """The same graph with more groups frozen, each for a reason."""
        groups = tuple(
            replace(group, frozen=reasons[group.name]) if group.frozen is None and group.name in reasons else group
            for group in self.groups
        )
        return replace(self, groups=groups)

    @property
    def free_share(self) -> float:
        """The share of all convolution output channels that may be pruned."""
        frozen_groups = np.array([group.frozen is not None for group in self.groups])
        total = free = 0
        for layer in self.layers:
            if layer.is_convolution and layer.output is not None:
                lane = self.lanes[layer.output]
                total += len(lane)
                free += int((~frozen_groups[self.unit_groups[lane[lane >= 0]]]).sum())
        return free / total if total else 0.0

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dictionaries; lanes as runs [first, step, count]."""
        data: dict[str, Any] = {"format": FORMAT, "model": self.model, "form": self.form, "notes": list(self.notes)}
        data["groups"] = [asdict(group) for group in self.groups]
        data["lanes"] = [to_runs(lane) for lane in self.lanes]
        for part in ("layers", "tensors", "sizes", "activations"):
            data[part] = [asdict(item) for item in getattr(self, part)]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChannelGraph:
        if data.get("format") != FORMAT:
            raise GraphMismatch(
                f"This graph has format {data.get('format')!r}, but this version of aacp reads format {FORMAT}. "
                "Trace the network again."
            )
        kinds = {"groups": ChannelGroup, "layers": Layer, "tensors": Tensor}
        kinds |= {"sizes": HardCodedSize, "activations": Activation}
        parts = {part: tuple(kind(**_tuples(item)) for item in data[part]) for part, kind in kinds.items()}
        lanes = tuple(from_runs(runs) for runs in data["lanes"])
        return cls(model=data["model"], form=data["form"], notes=tuple(data["notes"]), lanes=lanes, **parts)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json()) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ChannelGraph:
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise GraphMismatch(f"{path} does not hold a channel graph: {error}. Trace the network again.") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelGraph) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        from aacp.table import describe

        return describe(self)


def _chosen(group: ChannelGroup, choice: Any) -> NDArray[np.bool_]:
    """The units of one group that stay: the first `choice`, those listed, or those marked True."""
    mask = np.zeros(group.width, dtype=bool)
    values = np.asarray(choice)
    if values.ndim == 0 and np.issubdtype(values.dtype, np.integer):
        values = np.arange(int(values))
    elif values.ndim == 1 and values.dtype == bool:
        if values.shape != (group.width,):
            raise InvalidStructure(
                f"Group {group.name!r} has {group.width} channels, but its mask has shape {values.shape}. "
                "Give one truth value per channel."
            )
        values = np.flatnonzero(values)
    are_indices = values.ndim == 1 and len(values) > 0 and np.issubdtype(values.dtype, np.integer)
    if not are_indices or len(np.unique(values)) != len(values) or values.min() < 0 or values.max() >= group.width:
        raise InvalidStructure(
            f"Group {group.name!r} keeps between 1 and {group.width} different channels, but got {_short(choice)}. "
            "Give a count, or indices from 0 on, each once."
        )
    mask[values] = True
    return mask


def _short(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
