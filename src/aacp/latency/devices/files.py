"""The files of a device: manifest.json, which lists the networks to be timed there, and results.json, their times.

There are two kinds of folders: the networks of a latency table, and one network that is checked against a limit.
Both files may come from another machine, so every value that is read is checked by the type of its field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from aacp.disk.records import Amount, Count, Requirement, Seconds, matching, of_length
from aacp.latency.pieces import Piece

MANIFEST = "manifest.json"
RESULTS = "results.json"
FORMAT = 1  # the version of the format of both files
MAX_TURNS = 100_000  # the most turns of one network that are read
TABLE = "table"  # the kind of a folder whose networks are timed for a latency table
CHECK = "check"  # the kind of a folder that decides whether one network meets a limit

Format = Annotated[int, Requirement(str(FORMAT), lambda number: number == FORMAT)]
Kind = Annotated[str, Requirement(f"{TABLE} or {CHECK}", lambda kind: kind in (TABLE, CHECK))]
FileName = Annotated[str, matching(r"(?!\.{1,2}\Z)[^/\\\0]{1,100}", "the name of a file in the same folder")]
Sha256 = Annotated[str, matching("[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")]


@dataclass(frozen=True)
class ListedNetwork:
    """A network as a manifest lists it: its file, and the SHA-256 of all its parts."""

    file: FileName  # what the runtime opens
    sha256: Sha256
    beside: dict[FileName, Sha256]  # further files of the network, such as a file of weights

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of every part, by the name of its file."""
        return {self.file: self.sha256, **self.beside}


@dataclass(frozen=True)
class PrunedNetwork(ListedNetwork):
    """A network with its structure."""

    structure: tuple[Count, ...]


@dataclass(frozen=True)
class NetworkOfTable(PrunedNetwork):
    """A network of a latency table."""

    held_out: bool  # whether the table is not fitted to it, and its error is computed on it
    shares: tuple[Amount, ...]  # the share of each piece in the MACs of the structure


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json that both kinds of folders have."""

    format: Format
    kind: Kind
    model: str
    runtime: str
    device: str
    precision: str
    batch: Count
    threads: Count
    inputs: tuple[Any, ...]  # the shape and the type of each input
    original: ListedNetwork  # the unpruned network
    networks: tuple[PrunedNetwork, ...]


@dataclass(frozen=True)
class TableManifest(Manifest):
    """The manifest of a folder whose networks are timed for a latency table."""

    names: tuple[str, ...]  # the names of the groups
    choices: tuple[tuple[Count, ...], ...]  # the counts of each group in the search space
    pieces: tuple[Piece, ...]
    networks: tuple[NetworkOfTable, ...]


@dataclass(frozen=True)
class WrittenLimit:
    """A limit on latency; one of the two fields is None, as in a `Limit`."""

    pruning_rate: float | None
    at_most: float | None  # in seconds


@dataclass(frozen=True)
class CheckManifest(Manifest):
    """The manifest of a folder that decides whether a network meets a limit."""

    version: str  # of the runtime
    machine: str
    limit: WrittenLimit
    networks: tuple[PrunedNetwork]


@dataclass(frozen=True)
class TimedNetwork:
    """The times of a network and of the unpruned one, in turns."""

    sha256: Sha256
    repeats: tuple[Count, Count]  # how often each was run in a sample: the unpruned network, and this one
    turns: Annotated[tuple[tuple[Amount, Amount], ...], of_length(1, MAX_TURNS)]  # the seconds of both in each turn


@dataclass(frozen=True)
class Results:
    """The content of results.json."""

    format: Format
    kind: Kind
    manifest: Sha256
    runtime: str
    version: str
    machine: str
    clock_resolution: Seconds  # the smallest step of the clock
    networks: dict[str, TimedNetwork]  # by the names of their files
