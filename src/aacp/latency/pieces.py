"""The data of latency measurements: conditions, pieces of a network, and timed structures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aacp.channels.graph import ChannelGraph
from aacp.disk.records import Amount, Count, Seconds, Whole
from aacp.errors import DeviceMismatch
from aacp.latency.judging import STEADY_RATIO
from aacp.user.values import counted

LEAST_NOISE = 1e-3  # relative uncertainty that is assumed of the steadiest measurement, when two are merged


@dataclass(frozen=True)
class MeasurementConditions:
    """The conditions that a latency depends on besides the network."""

    runtime: str
    version: str  # the version of the runtime
    device: str  # "cpu", the name of a GPU, or a name that only the runtime knows
    precision: str  # such as "float32"
    batch: Count
    threads: Count
    machine: str

    def require(self, requested: MeasurementConditions) -> None:
        """Raise DeviceMismatch if the requested conditions are different."""
        advice = "Request what it was measured with, measure again here, or use the table where it was measured."
        self._require_equal(asdict(requested), "with", advice)

    def require_deployment(self, deployment: Mapping[str, Any]) -> None:
        """Raise DeviceMismatch if another deployment is requested; version and machine are those of the device.

        Args:
            deployment: runtime, device, precision, batch and threads.
        """
        advice = "Prune with the options that the networks were exported with."
        self._require_equal(deployment, "on another device with", advice)

    def _require_equal(self, requested: Mapping[str, Any], how: str, advice: str) -> None:
        for name, other in requested.items():
            mine = getattr(self, name)
            if mine != other:
                raise DeviceMismatch(
                    f"The latency table was measured {how} {name} {mine!r}, but {name} {other!r} is requested. {advice}"
                )

    def __str__(self) -> str:
        threads = f", {counted(self.threads, 'thread')}" if self.device == "cpu" else ""
        what = f"{self.precision}, batch {self.batch}{threads}"
        return f"{self.runtime} {self.version} on {self.device} ({self.machine}), {what}"


@dataclass(frozen=True)
class Width:
    """A number of channels as a function of a structure: a constant plus a multiple of the count of each group."""

    fixed: Whole  # the constant
    groups: tuple[tuple[str, Whole], ...]  # the names of groups, each with its multiple

    @classmethod
    def of(cls, graph: ChannelGraph, lane: int) -> Width:
        """Return the width of a lane of a graph."""
        matrix, offset = graph.lane_size_map
        times = {group.name: int(n) for group, n in zip(graph.free, matrix[lane], strict=True) if n}
        return cls(int(offset[lane]), tuple(times.items()))


@dataclass(frozen=True)
class Piece:
    """A layer and everything that runs after it up to the next one."""

    layer: str  # the name of the layer
    kind: str  # pieces of the same kind differ in their widths alone
    output_size: tuple[Whole, ...]  # height and width
    widths: tuple[Width, ...]  # the widths that the time of the piece depends on

    @property
    def groups(self) -> set[str]:
        """The names of the groups that the time of the piece depends on."""
        return {name for width in self.widths for name, _ in width.groups}


@dataclass(frozen=True)
class TimedStructure:
    """The seconds of one structure, and of the unpruned network in the same turns."""

    structure: tuple[Count, ...]
    whole: Seconds  # of the structure
    reference: Seconds  # of the unpruned network
    pieces: tuple[Amount, ...]  # seconds of each piece of the structure
    reference_pieces: Seconds  # of all pieces of the unpruned network together
    noise: Amount  # relative uncertainty of `whole / reference`, about one standard error

    def merged(self, other: TimedStructure) -> TimedStructure:
        """Return this measurement and another one of the same structure as one, weighted by their certainty.

        If the machine was much slower in one of them, the other one counts alone.
        """
        faster, slower = sorted((self, other), key=lambda measured: measured.reference)
        if slower.reference > STEADY_RATIO * faster.reference:
            return faster
        mine = max(self.noise, LEAST_NOISE) ** -2
        its = max(other.noise, LEAST_NOISE) ** -2
        share = mine / (mine + its)
        reference = min(self.reference, other.reference)  # other work on the machine only adds time
        reference_pieces = min(self.reference_pieces, other.reference_pieces)
        ratio = share * self.whole / self.reference + (1 - share) * other.whole / other.reference
        pairs = zip(self.pieces, other.pieces, strict=True)
        return TimedStructure(
            structure=self.structure,
            whole=ratio * reference,
            reference=reference,
            pieces=tuple(
                reference_pieces
                * (share * first / self.reference_pieces + (1 - share) * second / other.reference_pieces)
                for first, second in pairs
            ),
            reference_pieces=reference_pieces,
            noise=(mine + its) ** -0.5,
        )
