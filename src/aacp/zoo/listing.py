"""Listing: the files of a folder of images, named in one block of bytes.

ImageNet has 1,281,167 training images. As Path objects their names take about 500 MB, which every worker process would
copy bit by bit; in one block they take 50 MB, which all processes share.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from aacp.errors import InvalidData

ENDINGS = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, eq=False)
class Listing(Sequence[Path]):
    """Paths of files below a root, as a sequence.

    Args:
        root: the folder that all files are in.
        block: the names of the files relative to the root, one after another.
        starts: where each name starts in the block.
        ends: where each name ends in the block.
    """

    root: str
    block: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, root: str, names: Iterable[str]) -> Listing:
        """A listing of names relative to a root."""
        encoded = [os.fsencode(name) for name in names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(root, b"".join(encoded), ends[:-1], ends[1:])

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> Listing: ...
    def __getitem__(self, index: int | slice) -> Path | Listing:
        if isinstance(index, slice):
            return replace(self, starts=self.starts[index], ends=self.ends[index])
        return Path(self.root, os.fsdecode(self.block[self.starts[index] : self.ends[index]]))

    def subset(self, positions: NDArray[np.int64]) -> Listing:
        """The files at some positions, in that order."""
        return replace(self, starts=self.starts[positions], ends=self.ends[positions])

    def joined(self, others: Listing) -> Listing:
        """These files followed by others."""
        if self.block is not others.block or self.root != others.root:
            return Listing.of("", [*map(str, self), *map(str, others)])
        starts = np.concatenate([self.starts, others.starts])
        return replace(self, starts=starts, ends=np.concatenate([self.ends, others.ends]))

    def digest(self) -> str:
        """A short hash of the names, which does not depend on where the root is."""
        state = hashlib.blake2b(digest_size=8)
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            state.update(self.block[start:end] + b"\0")
        return state.hexdigest()


def list_images(folder: Path) -> tuple[Listing, NDArray[np.int64], tuple[str, ...]]:
    """All image files below a folder of class folders: the files, sorted by class and name, their labels, the classes.

    No file is opened, and none is asked for its type or size: that takes minutes for a million files.
    """
    with os.scandir(folder) as entries:
        classes = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    names = [sorted(_images_below(str(folder), name)) for name in classes]
    empty = [name for name, found in zip(classes, names, strict=True) if not found]
    if empty or not classes:
        reason = f"the class folder {empty[0]} contains no JPEG or PNG file" if empty else "there are no class folders"
        raise InvalidData(f"{folder} is not a folder of images: {reason}. Put each class into its own folder.")
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(found) for found in names])
    return Listing.of(str(folder), (name for found in names for name in found)), labels, tuple(classes)


def list_flat(folder: Path) -> Listing:
    """All image files that lie directly in a folder, sorted by name."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if _is_image(entry.name))
    return Listing.of(str(folder), names)


def is_flat(folder: Path) -> bool:
    """Whether image files lie directly in a folder, and no folders beside them, which would be classes."""
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_image(entry.name):
                found = True
            elif not entry.name.startswith(".") and entry.is_dir():
                return False
    return found


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(ENDINGS)


def _images_below(root: str, folder: str) -> list[str]:
    """The names of image files in a folder and in the folders below it, relative to the root."""
    found = []
    with os.scandir(os.path.join(root, folder)) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if _is_image(name):
                found.append(f"{folder}/{name}")
            elif entry.is_dir():
                found += _images_below(root, f"{folder}/{name}")
    return found
