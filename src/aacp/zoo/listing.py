"""ImagePaths: the files of a folder of images, named in one block of bytes.

ImageNet has 1,281,167 training images. As Path objects their names take about 500 MB, which every worker process would
copy bit by bit; in one block they take 50 MB, which all processes share.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from aacp.errors import AACPError, InvalidData

ENDINGS = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, eq=False)
class ImagePaths(Sequence[Path]):
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
    def of(cls, root: str, names: Iterable[str]) -> ImagePaths:
        """A listing of names relative to a root."""
        encoded = [os.fsencode(name) for name in names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(root, b"".join(encoded), ends[:-1], ends[1:])

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> ImagePaths: ...
    def __getitem__(self, index: int | slice) -> Path | ImagePaths:
        if isinstance(index, slice):
            return replace(self, starts=self.starts[index], ends=self.ends[index])
        return Path(self.root, os.fsdecode(self.block[self.starts[index] : self.ends[index]]))

    def subset(self, positions: NDArray[np.int64]) -> ImagePaths:
        """The files at some positions, in that order."""
        return replace(self, starts=self.starts[positions], ends=self.ends[positions])

    def joined(self, others: ImagePaths) -> ImagePaths:
        """These files followed by others."""
        if self.block is not others.block or self.root != others.root:
            return ImagePaths.of("", [*map(str, self), *map(str, others)])
        starts = np.concatenate([self.starts, others.starts])
        return replace(self, starts=starts, ends=np.concatenate([self.ends, others.ends]))

    def digest(self) -> str:
        """A short hash of the names, which does not depend on where the root is."""
        state = hashlib.blake2b(digest_size=8)
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            state.update(self.block[start:end] + b"\0")
        return state.hexdigest()


def list_images(folder: Path) -> tuple[ImagePaths, NDArray[np.int64], tuple[str, ...]]:
    """All image files below a folder of class folders: the files, sorted by class and name, their labels, the classes.

    No file is opened, and none is asked for its type or size: that takes minutes for a million files.
    """
    with _listed(folder) as entries:
        classes = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    names = [sorted(_images_below(str(folder), name, ())) for name in classes]
    empty = [name for name, found in zip(classes, names, strict=True) if not found]
    if empty or not classes:
        reason = f"the class folder {empty[0]} contains no JPEG or PNG file" if empty else "there are no class folders"
        raise InvalidData(f"{folder} is not a folder of images: {reason}. Put each class into its own folder.")
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(found) for found in names])
    return ImagePaths.of(str(folder), (name for found in names for name in found)), labels, tuple(classes)


def list_flat(folder: Path) -> ImagePaths:
    """All image files that lie directly in a folder, sorted by name."""
    with _listed(folder) as entries:
        names = sorted(entry.name for entry in entries if _is_image(entry.name))
    return ImagePaths.of(str(folder), names)


def is_flat(folder: Path) -> bool:
    """Whether image files lie directly in a folder, and no folders beside them, which would be classes."""
    found = False
    with _listed(folder) as entries:
        for entry in entries:
            if _is_image(entry.name):
                found = True
            elif not entry.name.startswith(".") and entry.is_dir():
                return False
    return found


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(ENDINGS)


def _images_below(root: str, folder: str, above: tuple[tuple[int, int], ...]) -> list[str]:
    """The names of image files in a folder and in the folders below it, relative to the root.

    Args:
        root: the folder that names are relative to.
        folder: the folder to list, relative to the root.
        above: device and inode of the folders on the way here; a link back to one of them would have no end.
    """
    place = os.path.join(root, folder)
    found = []
    with _listed(place) as entries:
        status = os.stat(place)
        here = (status.st_dev, status.st_ino)
        if here in above:
            raise InvalidData(f"{place} is a link to a folder that contains it. Remove the link.")
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if _is_image(name):
                found.append(f"{folder}/{name}")
            elif entry.is_dir():
                found += _images_below(root, f"{folder}/{name}", (*above, here))
    return found


@contextmanager
def _listed(folder: str | Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder; errors of the system, also while they are read, are raised as InvalidData."""
    try:
        with os.scandir(folder) as entries:
            yield entries
    except (OSError, ValueError) as error:
        if isinstance(error, AACPError):
            raise
        words = getattr(error, "strerror", None) or str(error)
        raise InvalidData(f"The folder {folder} cannot be read: {words}. Give a folder that can be read.") from error
