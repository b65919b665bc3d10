"""PixelCache: decoded images on disk, read through a memory map.

Each set of images is one file of bytes, named by a hash of what it holds, and one file with its checksums. The second
file is written last, and both are renamed into place: a set is either whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.endless import without_worker_traceback
from aacp.data.memory import worker_count
from aacp.disk.failures import writing_errors
from aacp.disk.folders import create_folder
from aacp.disk.reading import open_file, read_bytes, reading_as
from aacp.disk.writing import remove_leftovers, replace_file, replacing
from aacp.errors import InvalidData

VERSION = 1  # of the layout of the files
BATCH = 64  # images that are written at once
MAX_CHECKSUMS = 4 * 100_000_000  # bytes, four for each image
DELETE = "Delete the file, and the next command writes it again."


@dataclass(frozen=True, eq=False)
class CachedPixels(Dataset[tuple[Tensor, int]]):
    """Images of a cache as bytes of shape (size, size, 3), each compared with its checksum when it is read."""

    file: Path
    pixels: NDArray[np.uint8]
    checksums: NDArray[np.uint32]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.array(self.pixels[index])
        if zlib.crc32(pixels.data) != self.checksums[index]:
            raise InvalidData(f"Image {index} of the cache {self.file} is damaged. {DELETE}")
        return torch.from_numpy(pixels), int(self.labels[index])


@dataclass(frozen=True)
class PixelCache:
    """A folder of decoded images."""

    folder: Path

    def read(self, identity: dict[str, Any], images: Dataset[tuple[Tensor, int]], labels: Tensor) -> CachedPixels:
        """A set of decoded images, which are decoded and written now if they are not there.

        Args:
            identity: what the set holds; it names the files.
            images: the set itself, as bytes and labels.
            labels: the label of each image.
        """
        text = json.dumps({"version": VERSION, **identity}, sort_keys=True)
        file = self.folder / f"{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.pixels"
        shape = (len(labels), identity["size"], identity["size"], 3)
        if not (file.exists() and _checksum_file(file).exists()):
            self._write(file, images, shape)
        return self._opened(file, shape, labels)

    def _opened(self, file: Path, shape: tuple[int, ...], labels: Tensor) -> CachedPixels:
        """A set that is there; its sizes are compared now, its images when they are read."""
        expected = math.prod(shape)
        with reading_as(InvalidData):
            sums = read_bytes(_checksum_file(file), DELETE, MAX_CHECKSUMS)
            with open_file(file, DELETE) as opened:
                found = opened.seek(0, os.SEEK_END)
        checksums = np.frombuffer(sums[: len(sums) // 4 * 4], np.uint32)
        if found != expected or len(checksums) != shape[0]:
            raise InvalidData(
                f"The cache {file} has {found:,} bytes and {len(checksums):,} checksums, but {shape[0]:,} images have "
                f"{expected:,} bytes. {DELETE}"
            )
        return CachedPixels(file, np.memmap(file, np.uint8, "r", shape=shape), checksums, labels)

    def _write(self, file: Path, images: Dataset[tuple[Tensor, int]], shape: tuple[int, ...]) -> None:
        self._require_space(math.prod(shape))
        sys.stderr.write(f"decoding {shape[0]:,} images into the cache {file}\n")
        loader = DataLoader(images, BATCH, num_workers=worker_count(shape[0]))
        checksums: list[int] = []
        with replacing(file) as pixels:
            for batch, _ in without_worker_traceback(loader):
                for image in batch.numpy():
                    pixels.write(image)
                    checksums.append(zlib.crc32(image.data))
        replace_file(_checksum_file(file), np.array(checksums, np.uint32).tobytes())

    def _require_space(self, needed: int) -> None:
        """Reject a folder that cannot be written to, or whose disk is too full."""
        create_folder(self.folder)
        remove_leftovers(self.folder)
        with writing_errors(self.folder):
            free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise InvalidData(
                f"The decoded images take {needed / 1e9:.1f} GB, but the disk of the cache {self.folder} has "
                f"{free / 1e9:.1f} GB free. Give a folder on another disk, or no cache."
            )


def _checksum_file(file: Path) -> Path:
    return file.with_suffix(".crc32")
