"""Weights from files: safetensors, or torch files that hold nothing but tensors and plain values."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from aacp.disk.reading import open_file, reading_as
from aacp.disk.tensors import tensors_in
from aacp.errors import AACPError, InvalidWeights
from aacp.pytorch.modules import require_network
from aacp.user.values import path_text
from aacp.zoo.pickles import require_bounded

PLACES = ("state_dict", "model")  # keys under which training scripts save the state dict beside other values
SHOWN = 5  # at most this many keys of each kind are listed in an error
SHOWN_NAME = 100  # characters of a key that are shown in an error
ZIP = b"PK\x03\x04"  # how the files begin that torch writes today; older ones are several pickles in a row
OLD_PICKLES = 5  # in an older file: a number, a version, the system, the state dict, the keys of its tensors
SAVE = "Save model.state_dict() with safetensors or torch.save."


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load the weights of a file into the network; if any tensor does not fit, nothing is changed."""
    require_network(model)
    own = model.state_dict()
    weights = _without_prefix(read_weights(path), own)
    mismatches = _mismatches(own, weights)
    if mismatches:
        raise InvalidWeights(
            f"{path} does not fit {type(model).__name__}: {'; '.join(mismatches)}. "
            "Build the network these weights were trained with, or name another file; aacp.load loads a pruned network."
        )
    model.load_state_dict(weights, strict=False)  # not strict: old files lack num_batches_tracked of batch norms


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU. Anything but tensors and plain values is rejected, never executed."""
    path = Path(path_text("path", path))
    if not os.path.lexists(path):
        raise InvalidWeights(f"There is no file {path}. Name a safetensors file or one written by torch.save.")
    with reading_as(InvalidWeights), open_file(path, SAVE) as file:
        is_safetensors = file.read(9)[8:] == b"{"  # a JSON header after its length; the suffix may be wrong
        file.seek(0)
        return _state_dict(path, tensors_in(path, SAVE) if is_safetensors else _from_torch(path, file))


def _from_torch(path: Path, file: BinaryIO) -> Any:
    """What torch.save wrote, after a look at how much it would take in memory."""
    try:
        is_zip = file.read(len(ZIP)) == ZIP
        file.seek(0)
        _require_bounded_zip(file) if is_zip else _require_bounded_pickles(file)
        file.seek(0)
        return torch.load(file, "cpu", weights_only=True)
    except AACPError:
        raise
    except Exception as error:  # torch alone raises five classes of exception
        raise InvalidWeights(f"{path} cannot be read as weights ({_reason(error)}). {SAVE}") from error


def _require_bounded_zip(file: BinaryIO) -> None:
    """Reject a zip file whose content is larger than the file: torch does not compress."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        claimed = sum(entry.file_size for entry in entries)
        if claimed > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError(f"its {size:,} bytes claim to hold {claimed:,}, compressed or twice")
        for entry in entries:
            if entry.filename.endswith(".pkl"):
                with archive.open(entry) as content:
                    require_bounded(content)  # type: ignore[arg-type]


def _require_bounded_pickles(file: BinaryIO) -> None:
    for _ in range(OLD_PICKLES):
        require_bounded(file)


def _state_dict(path: Path, found: Any) -> dict[str, Tensor]:
    for place in PLACES:
        if isinstance(found, Mapping) and isinstance(found.get(place), Mapping):
            found = found[place]
            break
    if not isinstance(found, Mapping):
        raise InvalidWeights(f"{path} contains a {type(found).__name__}, not a state dict. Save model.state_dict().")
    others = [str(name) for name, value in found.items() if not isinstance(value, Tensor)]
    if others or not found:
        raise InvalidWeights(
            f"{path} contains {_listed(others) if others else 'nothing'} where tensors are expected. "
            f"Save model.state_dict(), alone or under {' or '.join(map(repr, PLACES))}."
        )
    return {str(name): value for name, value in found.items()}


def _without_prefix(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights without what a wrapper has put before all names: torch's, or a module that trains a network."""
    prefix = _shared_prefix(weights).removesuffix(_shared_prefix(own))
    stripped = {name.removeprefix(prefix): value for name, value in weights.items()}
    return stripped if len(stripped.keys() & own.keys()) > len(weights.keys() & own.keys()) else weights


def _shared_prefix(names: Iterable[str]) -> str:
    """The modules that all names begin with: "model." for "model.conv.weight" and "model.fc.weight"."""
    columns = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return "".join(f"{column[0]}." for column in takewhile(lambda column: len(set(column)) == 1, columns))


def _mismatches(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[str]:
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = sorted(name for name in weights if name not in own)  # safetensors has no order
    shapes = [
        f"{name} ({_sizes(weights[name])} in the file, {_sizes(own[name])} in the network)"
        for name in own
        if name in weights and weights[name].shape != own[name].shape
    ]
    types = [
        f"{name} ({_kind(weights[name])} in the file, {_kind(own[name])} in the network)"
        for name in own
        if name in weights and weights[name].shape == own[name].shape and not _is_copyable(weights[name], own[name])
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes, "of another type": types}
    return [f"{kind} {_listed(names)}" for kind, names in kinds.items() if names]


def _is_copyable(value: Tensor, own: Tensor) -> bool:
    """Whether the numbers of a tensor are of the same sort as those that it replaces: 0.7 does not become 0."""
    if value.is_meta or value.layout != own.layout or value.is_quantized != own.is_quantized:
        return False
    return (value.is_floating_point(), value.is_complex()) == (own.is_floating_point(), own.is_complex())


def _kind(tensor: Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" as {tensor.layout}"
    return f"{tensor.dtype}{layout}{' without data' if tensor.is_meta else ''}"


def _sizes(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


def _listed(names: Iterable[str]) -> str:
    names = [name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..." for name in names]
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest


def _reason(error: Exception) -> str:
    """Why a file was rejected, in a few words: torch's own messages end with the advice to execute the file."""
    named = re.search(r"GLOBAL (\S+)", str(error))
    if named:
        return f"it names {named[1]}, which is neither a tensor nor a plain value"
    return re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".") or type(error).__name__
