"""Artefact: the header of a pruned network's file as plain data, read without the weights.

It holds the channel graph that the original was cut along and what each group keeps. That is enough to cut a new
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
from aacp.runs.trainings import delivered_in
from aacp.structure import Structure
from aacp.version import __version__

FORMAT = 1  # version of the header's format; raise it when a field changes its meaning
# The name of the only entry in the metadata of a safetensors file. Several entries would have no fixed order, and equal
# networks would not give equal bytes.
KEY = "aacp"
Channels = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class AppliedCut:
    """One cut of a network."""

    graph: ChannelGraph
    structure: Structure  # how many units each free group keeps
    channels: Channels | None = None  # the indices of the units that each free group keeps, if they are known

    @property
    def kept(self) -> Structure | Channels:
        """The argument for `shrink`: the indices of the kept units or, if they are unknown, only their counts."""
        return self.structure if self.channels is None else self.channels

    def to_json(self) -> dict[str, Any]:
        return {"structure": list(self.structure), "channels": self.channels, "graph": self.graph.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AppliedCut:
        graph = ChannelGraph.from_json(data["graph"])
        structure = Structure(data["structure"])
        graph.valid_counts(structure)  # rejects counts that are not the graph's
        if data["channels"] is None:
            return cls(graph, structure)
        channels = tuple(tuple(part) for part in data["channels"])
        graph.kept_units(channels)
        if list(map(len, channels)) != list(structure):
            raise ValueError("structure and channels differ")
        return cls(graph, structure, channels)


@dataclass(frozen=True)
class Artefact:
    """The header of a pruned network's file: everything but the weights."""

    model: str | None  # the name by which `build_model` builds the original
    cuts: tuple[AppliedCut, ...]  # one, or several if a pruned network was pruned again
    example: Any = None  # shapes and types of an input, as plain data
    metadata: Mapping[str, Any] | None = None  # what the caller of `save` passed
    version: str = __version__  # the version of aacp that wrote the file

    @property
    def graph(self) -> ChannelGraph:
        return self.cuts[-1].graph

    @property
    def structure(self) -> Structure:
        return self.cuts[-1].structure

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Artefact:
        """Read the header of a file, or of the pruned network in a run folder."""
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
                raise ValueError("it holds no cut")
            return cls(data["model"], cuts, data["example"], data["metadata"], data["aacp"])
        except BrokenArtefact:
            raise
        except (AACPError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise BrokenArtefact(
                f"The header of {path} does not describe a pruned network ({type(error).__name__}: {error}). "
                "Write the file again with aacp.save."
            ) from error

    def text(self) -> str:
        """Return the header as JSON; equal headers give equal text."""
        data = {"format": FORMAT, "aacp": self.version, "model": self.model, "example": self.example}
        data |= {"metadata": self.metadata, "cuts": [cut.to_json() for cut in self.cuts]}
        try:
            return json.dumps(data, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidOption(
                f"The metadata cannot be written as JSON: {error}. Use text, finite numbers, lists and dictionaries."
            ) from error


def artefact_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the file: of a run folder or the folder of a training, that of the pruned network in it."""
    path = Path(path)
    return delivered_in(path) if path.is_dir() else path


def _text_in(path: Path) -> str:
    if not path.is_file():
        raise BrokenArtefact(f"There is no file {path}. Name one that aacp.save has written.")
    try:
        with safe_open(path, "np") as file:
            entries = file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise BrokenArtefact(
            f"{path} is not a complete safetensors file: {error}. Copy it again from its source."
        ) from error
    if KEY not in entries:
        raise BrokenArtefact(
            f"{path} holds weights, but no header of a pruned network. Load plain weights with aacp.load_weights."
        )
    return str(entries[KEY])
