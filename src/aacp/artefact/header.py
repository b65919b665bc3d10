"""Artefact: the header of a pruned network's file as plain data, read without the weights.

It holds the channel graph that the original was cut along and what each group keeps. That is enough to cut a new
original to the same shapes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aacp.channels.elements import MAX_DIMS
from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.disk.parsing import parse_json
from aacp.disk.reading import reading_as
from aacp.disk.tensors import tensor_header
from aacp.errors import AACPError, BrokenArtefact, DamagedFile, InvalidOption, first_line
from aacp.runs.files import ARTEFACT
from aacp.runs.trainings import delivered_in
from aacp.user.values import path_text
from aacp.version import __version__

FORMAT = 1  # version of the header's format; raise it when a field changes its meaning
# The name of the only entry in the metadata of a safetensors file.
KEY = "aacp"
Channels = tuple[tuple[int, ...], ...]
COPY_AGAIN = "Copy it again from its source, or name a file that aacp.save has written."
# Files of other kinds by their suffixes; those of torch are known by their content.
EXPORTS = {".onnx": "ONNX Runtime", ".xml": "OpenVINO", ".pte": "ExecuTorch", ".param": "ncnn"}
MAX_EXAMPLE = 1 << 28  # numbers in all tensors of an example
NUMBER_TYPES = {
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128",
    "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool",
}  # fmt: skip


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
        """The cut that `to_json` was called on; one that the graph does not allow is rejected."""
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

    def __repr__(self) -> str:
        return f"<Artefact of {self.graph.model}, kept {list(self.structure)}, aacp {self.version}>"

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
            data = parse_json(_text_in(path).encode())
            if data["format"] != FORMAT:
                raise BrokenArtefact(
                    f"{path} has format {data['format']!r:.40}, written by aacp {data['aacp']!s:.40}, but this is aacp "
                    f"{__version__} and reads format {FORMAT}. Install that version, or write the file again."
                )
            cuts = tuple(AppliedCut.from_json(cut) for cut in data["cuts"])
            if not cuts:
                raise ValueError("it holds no cut")
            _require_example(data["example"])
            _require_types(data)
            return cls(data["model"], cuts, data["example"], data["metadata"], data["aacp"])
        except BrokenArtefact:
            raise
        except (AACPError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
            raise BrokenArtefact(
                f"The header of {path} does not describe a pruned network ({first_line(error)}). "
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
    path = Path(path_text("path", path))
    if not path.is_dir():
        return path
    found = delivered_in(path)
    if not os.path.lexists(found):
        raise BrokenArtefact(
            f"{path} is a folder without {found.name}, which only the folder of a run has, after a training. "
            "Name the folder of a run whose training has ended, or a file that aacp.save has written."
        )
    return found


def _text_in(path: Path) -> str:
    if not os.path.lexists(path):
        raise BrokenArtefact(
            f"There is no file or folder {path}. Name a run folder, or a file that aacp.save has written."
        )
    with reading_as(BrokenArtefact):
        try:
            entries = tensor_header(path, COPY_AGAIN).metadata
        except DamagedFile:
            _reject_export(path)
            raise
    if KEY not in entries:
        raise BrokenArtefact(
            f"{path} holds weights, but no header of a pruned network. Load plain weights with aacp.load_weights."
        )
    return entries[KEY]


def _reject_export(path: Path) -> None:
    """Say what a file for a runtime is; it holds no tensors that a network could be filled with."""
    runtime = EXPORTS.get(path.suffix.lower())
    if runtime is not None:
        raise BrokenArtefact(
            f"{path} is a file for {runtime} by its name, and not a network that torch can train. Run it with "
            f"{runtime}, or load what it was exported from: in a folder of aacp, {path.parent / ARTEFACT}."
        )


def _require_types(data: Mapping[str, Any]) -> None:
    for name, kinds in {"model": (str, type(None)), "metadata": (dict, type(None)), "aacp": (str,)}.items():
        if not isinstance(data[name], kinds):
            raise ValueError(f"its {name} is {data[name]!r:.40}")


def _require_example(plain: Any) -> int:
    """Reject an example that cannot be built, or takes too much memory; return the number of its numbers."""
    items: list[Any] = []
    if isinstance(plain, list):
        items = plain
    elif isinstance(plain, Mapping) and plain.keys() == {"tuple"} and isinstance(plain["tuple"], list):
        items = plain["tuple"]
    elif isinstance(plain, Mapping) and plain.keys() == {"dictionary"} and isinstance(plain["dictionary"], dict):
        items = list(plain["dictionary"].values())
    elif isinstance(plain, Mapping):
        return _count_of(plain)
    total = sum(map(_require_example, items))
    if total > MAX_EXAMPLE:
        raise ValueError(f"its example has {total:,} numbers, more than {MAX_EXAMPLE:,}")
    return total


def _count_of(tensor: Mapping[str, Any]) -> int:
    """The number of numbers in a tensor of an example, by its shape."""
    shape, kind = tensor.get("tensor"), tensor.get("dtype")
    is_shape = isinstance(shape, list) and len(shape) <= MAX_DIMS
    if not is_shape or not all(type(size) is int and 0 <= size <= MAX_EXAMPLE for size in shape or ()):
        raise ValueError(f"the shape of its example is {shape!r:.40}")
    if kind not in NUMBER_TYPES:
        raise ValueError(f"the type of its example is {kind!r:.40}")
    count = math.prod(shape or ())
    if count > MAX_EXAMPLE:
        raise ValueError(f"its example has {count:,} numbers, more than {MAX_EXAMPLE:,}")
    return count
