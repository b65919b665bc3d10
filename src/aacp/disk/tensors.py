"""Safetensors files: the header is checked against the length of the file before any memory is allocated."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aacp.disk.parsing import parse_json
from aacp.disk.reading import RESTORE, AnyPath, open_file, read_bytes
from aacp.errors import DamagedFile

MAX_HEADER = 100_000_000  # bytes, the limit of the format
LENGTH_BYTES = 8  # the length of the header, in front of it
ZIP = b"PK\x03\x04"  # how the files of torch.save begin
METADATA = "__metadata__"
MAX_DIMS = 64  # of a tensor, the limit of torch


@dataclass(frozen=True)
class TensorHeader:
    """What a safetensors file says about its tensors."""

    metadata: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]  # the names of the format: "F32"


def tensor_bytes(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The content of a safetensors file, the same in every process for the same tensors and metadata.

    The library writes several entries of metadata in a random order; here they are sorted.

    Args:
        tensors: contiguous tensors on the CPU that share no memory, by name.
        metadata: what the header says besides.
    """
    from safetensors.torch import save

    content: bytes = save(dict(tensors), dict(metadata) if metadata else None)
    if metadata is None or len(metadata) < 2:
        return content
    end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    entries = json.loads(content[LENGTH_BYTES:end])
    entries[METADATA] = dict(sorted(metadata.items()))
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % LENGTH_BYTES)
    return len(header).to_bytes(LENGTH_BYTES, "little") + header + content[end:]


def tensor_header(path: AnyPath, remedy: str = RESTORE) -> TensorHeader:
    """The header of a safetensors file, read without the tensors."""
    with open_file(path, remedy) as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(LENGTH_BYTES)
        if first.startswith(ZIP):
            raise DamagedFile(
                f"{path} is a file of torch.save or another zip archive, not a safetensors file. Load a checkpoint of "
                "torch with torch.load and load_state_dict."
            )
        length = int.from_bytes(first, "little")
        if size < LENGTH_BYTES or not 2 <= length <= min(MAX_HEADER, size - LENGTH_BYTES):
            raise DamagedFile(f"{path} is not a complete safetensors file: it has {size:,} bytes. {remedy}")
        content = file.read(length)
    try:
        return _header(content, size - LENGTH_BYTES - length)
    except ValueError as error:
        raise DamagedFile(f"{path} is not a complete safetensors file: {error}. {remedy}") from None


def tensors_in(path: AnyPath, remedy: str = RESTORE) -> dict[str, Any]:
    """The tensors of a safetensors file by name, on the CPU.

    The file is read as a whole and not mapped into memory, so that it may be replaced or cut off while they are used.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    tensor_header(path, remedy)
    content = read_bytes(path, remedy)
    try:
        return dict(load(content))
    except (SafetensorError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, MemoryError) as error:
        raise DamagedFile(f"{path} cannot be read as tensors: {error}. {remedy}") from error


def _header(content: bytes, available: int) -> TensorHeader:
    """The header from its bytes; `available` bytes follow it."""
    entries = parse_json(content)
    if not isinstance(entries, dict):
        raise ValueError("its header is not an object")
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not text")
    for name, entry in entries.items():
        _require_entry(name[:100], entry, available)
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if end != available:
        raise ValueError(f"its tensors take {end:,} bytes, but {available:,} follow the header")
    shapes = {name: tuple(entry["shape"]) for name, entry in entries.items()}
    return TensorHeader(metadata, shapes, {name: entry["dtype"] for name, entry in entries.items()})


def _require_entry(name: str, entry: Any, available: int) -> None:
    """Reject the entry of a tensor that is not well formed or claims more than the file holds."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("dtype"), str):
        raise ValueError(f"the entry of tensor {name} is not complete")
    shape = _counts(entry.get("shape"), f"the shape of tensor {name}")
    offsets = _counts(entry.get("data_offsets"), f"the place of tensor {name}")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= available:
        raise ValueError(f"tensor {name} lies at {offsets} of {available:,} bytes")
    if math.prod(shape) > 8 * (offsets[1] - offsets[0]):  # no type has less than one bit per number
        raise ValueError(f"tensor {name} has shape {shape}, but {offsets[1] - offsets[0]:,} bytes")


def _counts(values: Any, what: str) -> list[int]:
    """A list of whole numbers from 0."""
    if not isinstance(values, list) or len(values) > MAX_DIMS:
        raise ValueError(f"{what} is not a list of at most {MAX_DIMS} numbers")
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{what} is {values!r:.60}, not a list of whole numbers")
    return values
