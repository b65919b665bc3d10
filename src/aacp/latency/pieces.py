"""What latencies are measured of: where (a Setting), what (Pieces of a network), and how long (Measured)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from aacp.channels import ChannelGraph
from aacp.errors import DeviceMismatch


@dataclass(frozen=True)
class MeasurementConditions:
    """What a latency depends on besides the network; `device` is "cpu" or the name of a GPU."""

    runtime: str
    version: str
    device: str
    precision: str
    batch: int
    threads: int
    machine: str

    def require(self, asked: MeasurementConditions) -> None:
        """Refuse to stand for another setting."""
        for field in fields(self):
            mine, other = getattr(self, field.name), getattr(asked, field.name)
            if mine != other:
                raise DeviceMismatch(
                    f"The latency table was measured with {field.name} {mine!r}, but {field.name} {other!r} is asked "
                    "for. Measure again there, with the same options."
                )

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.device == "cpu" else ""
        what = f"{self.precision}, batch {self.batch}{threads}"
        return f"{self.runtime} {self.version} on {self.device} ({self.machine}), {what}"


@dataclass(frozen=True)
class Width:
    """A number of channels that follows a structure: `fixed`, and so many times the count of each group."""

    fixed: int
    groups: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, graph: ChannelGraph, lane: int) -> Width:
        matrix, offset = graph.lane_size_map
        times = {group.name: int(n) for group, n in zip(graph.free, matrix[lane], strict=True) if n}
        return cls(int(offset[lane]), tuple(times.items()))


@dataclass(frozen=True)
class Piece:
    """A layer and what runs after it up to the next one; pieces of the same kind differ in their widths alone."""

    layer: str
    kind: str
    output_size: tuple[int, ...]
    widths: tuple[Width, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Piece:
        widths = [
            Width(width["fixed"], tuple((name, times) for name, times in width["groups"])) for width in data["widths"]
        ]
        return cls(data["layer"], data["kind"], tuple(data["output_size"]), tuple(widths))


@dataclass(frozen=True)
class TimedStructure:
    """What was measured of one structure: low quantiles of the turns, and of the unpruned network in the same turns."""

    structure: tuple[int, ...]
    whole: float  # seconds
    reference: float  # of the unpruned network
    pieces: tuple[float, ...]
    reference_pieces: float  # of the unpruned network, all together
    noise: float  # of the ratio of whole to reference: relative, one standard error or so

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TimedStructure:
        values: dict[str, Any] = {**data, "structure": tuple(data["structure"]), "pieces": tuple(data["pieces"])}
        return cls(**values)
