"""Header: what the file of a pruned network says about it, as plain data; the weights are not read.

It says along which graph the original was cut and how many channels each group keeps. That is enough to cut a fresh
original to the same shapes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from aacp.channels import ChannelGraph
from aacp.errors import AACPError, BrokenArtefact, InvalidOption
from aacp.structure import Structure
from aacp.version import __version__

FORMAT = 1  # of the header; raise it when a field changes its meaning
KEY = "aacp"  # one entry holds all: safetensors does not promise to keep several in order, and equal means equal bytes
ARTEFACT = "pruned.safetensors"  # the name of the file in a run folder
Channels = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class AppliedCut:
    """One cut of a network: its graph, how many channels each free group keeps and, where it was told, which."""

    graph: ChannelGraph
    structure: Structure
    channels: Channels | None = None

    @property
    def kept(self) -> Structure | Channels:
        """What `shrink` wants to hear; counts do where the channels are not known, since shapes need no more."""
        return self.structure if self.channels is None else self.channels

    def to_json(self) -> dict[str, Any]:
        return {"structure": list(self.structure), "channels": self.channels, "graph": self.graph.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AppliedCut:
        graph, structure = ChannelGraph.from_json(data["graph"]), Structure(data["structure"])
        graph.lane_sizes(structure)  # refuses counts that are not the graph's
        if data["channels"] is None:
            return cls(graph, structure)
        channels = tuple(tuple(part) for part in data["channels"])
        graph.kept_units(channels)
        if list(map(len, channels)) != list(structure):
            raise ValueError("structure and channels differ")
        return cls(graph, structure, channels)


@dataclass(frozen=True)
class Artefact:
    """What the header of a file says: all but the weights."""

    model: str | None  # the name that `build_model` knows the original by
    cuts: tuple[AppliedCut, ...]  # one, or several if a pruned network was pruned again
    example: Any = None  # shapes and types of an input, as plain data
    metadata: Mapping[str, Any] | None = None  # the caller's own
    version: str = __version__  # of the aacp that wrote it

    @property
    def graph(self) -> ChannelGraph:
        return self.cuts[-1].graph

    @property
    def structure(self) -> Structure:
        return self.cuts[-1].structure

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Artefact:
        """The header of a file, or of the pruned network in a run folder; the weights are not read."""
        path = artefact_path(path)
        try:
            data = json.loads(_text_in(path))
            if data["format"] != FORMAT:
                raise BrokenArtefact(
                    f"{path} has format {data['format']!r}, written by aacp {data['aacp']}, but this is aacp "
                    f"{__version__} and reads format {FORMAT}. Install that version, or write the file again."
                )
            cuts = tuple(AppliedCut.from_json(cut) for cut in data["cuts"])
            if not cuts:
                raise ValueError("there is no cut in it")
            return cls(data["model"], cuts, data["example"], data["metadata"], data["aacp"])
        except BrokenArtefact:
            raise
        except (AACPError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise BrokenArtefact(
                f"The header of {path} is not one of a pruned network ({type(error).__name__}: {error}). "
                "Write the file again with aacp.save."
            ) from error

    def text(self) -> str:
        """The header, the same for the same content."""
        data = {"format": FORMAT, "aacp": self.version, "model": self.model, "example": self.example}
        data |= {"metadata": self.metadata, "cuts": [cut.to_json() for cut in self.cuts]}
        try:
            return json.dumps(data, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"The metadata cannot be written as JSON: {error}. Use text, finite numbers, lists and dictionaries."
            ) from error


def artefact_path(path: str | os.PathLike[str]) -> Path:
    """The file itself, also of a run folder."""
    path = Path(path)
    return path / ARTEFACT if path.is_dir() else path


def _text_in(path: Path) -> str:
    if not path.is_file():
        raise BrokenArtefact(f"There is no file {path}. Name one that aacp.save has written.")
    try:
        with safe_open(path, "np") as file:
            entries = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise BrokenArtefact(
            f"{path} is not a whole safetensors file: {error}. Copy it anew from where it came from."
        ) from error
    if KEY not in entries:
        raise BrokenArtefact(
            f"{path} holds weights but does not say what was pruned. Load plain weights with aacp.load_weights."
        )
    return str(entries[KEY])
