"""Safetensors files: the header is checked against the length of the file before any memory is allocated."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from aacp.disk.parsing import parse_json
from aacp.disk.reading import RESTORE, AnyPath, open_file, read_bytes
from aacp.disk.records import Record, Whole, of_length, read_value, require
from aacp.errors import DamagedFile
from aacp.user.values import shortened

MAX_HEADER = 100_000_000  # bytes, the limit of the format
LENGTH_BYTES = 8  # the length of the header, in front of it
TORCH = (b"PK\x03\x04", b"\x80\x02")  # how the files of torch.save begin, today as a zip archive, once as pickles
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
        if first.startswith(TORCH):
            raise DamagedFile(
                f"{path} is a file of torch.save or another zip archive, not a safetensors file. Load a checkpoint of "
                "torch into its network with aacp.load_weights."
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


@dataclass(frozen=True)
class _Entry(Record):
    """What the header says about one tensor."""

    dtype: str
    shape: Annotated[tuple[Whole, ...], of_length(0, MAX_DIMS)]
    data_offsets: tuple[Whole, Whole]  # where its bytes begin and end


def _header(content: bytes, available: int) -> TensorHeader:
    """The header from its bytes; `available` bytes follow it."""
    entries = parse_json(content)
    require(isinstance(entries, dict), "its header is not an object")
    metadata = read_value(dict[str, str], entries.pop(METADATA, {}), METADATA)
    tensors: dict[str, _Entry] = read_value(dict[str, _Entry], entries)
    for name, entry in tensors.items():
        begin, end = entry.data_offsets
        is_inside = begin <= end <= available
        require(is_inside, f"tensor {shortened(name)} lies at {begin} to {end} of {available:,} bytes")
        is_enough = math.prod(entry.shape) <= 8 * (end - begin)  # no type has less than one bit per number
        require(is_enough, f"tensor {shortened(name)} has shape {list(entry.shape)}, but {end - begin:,} bytes")
    last = max((entry.data_offsets[1] for entry in tensors.values()), default=0)
    require(last == available, f"its tensors take {last:,} bytes, but {available:,} follow the header")
    shapes = {name: entry.shape for name, entry in tensors.items()}
    return TensorHeader(metadata, shapes, {name: entry.dtype for name, entry in tensors.items()})
