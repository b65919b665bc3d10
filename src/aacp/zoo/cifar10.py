"""CIFAR-10 from its canonical files, binary or pickled; pickles are read without executing anything they name."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.data.images import Images
from aacp.data.splits import Data, Holdout, split
from aacp.disk.reading import read_bytes, reading_as
from aacp.errors import InvalidData
from aacp.zoo.pickles import require_bounded

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
IMAGES = 10_000  # images in each file
PIXELS = 3 * 32 * 32
MAX_PICKLE = 100_000_000  # bytes of a pickled file; the canonical ones have 31 million
UNPACK = "Unpack the archive again."
# The public checkpoints were trained with the statistics of ImageNet.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Rows = NDArray[np.uint8]  # a label and its pixels: 1 + 3 x 32 x 32 bytes
Reader = Callable[[Path, bytes], Rows]


def cifar10(path: str | os.PathLike[str], holdout: Holdout = None, seed: int = 0) -> Data:
    """CIFAR-10 from a folder.

    Args:
        path: the folder with the files, or the one that the archive was unpacked in.
        holdout: the part of the 50,000 training images that is held out for the search; see `aacp.load_data`.
        seed: chooses which images are held out.
    """
    read = _reader(Path(path))
    training, test = (_images([read(name) for name in names]) for names in (TRAINING, TEST))
    rest, held = split(training.labels, holdout, seed)
    train = replace(training.subset(rest), padding=4, flip=True)
    return Data(train, training.subset(held), test, "cifar10", CLASSES)


def _reader(path: Path) -> Callable[[str], Rows]:
    """A function that reads a file by its bare name, from `path` or from the canonical folder inside it."""
    for folder in (path / "cifar-10-batches-bin", path / "cifar-10-batches-py", path):
        if os.path.lexists(folder / "test_batch.bin"):
            return lambda name: _checked(folder / f"{name}.bin", _binary)
        if os.path.lexists(folder / "test_batch"):
            return lambda name: _checked(folder / name, _pickled)
    raise InvalidData(
        f"{path} does not contain CIFAR-10: there is neither test_batch.bin nor test_batch, in it or in "
        "cifar-10-batches-bin or cifar-10-batches-py. Name the folder that the archive was unpacked in."
    )


def _checked(path: Path, read: Reader) -> Rows:
    if not os.path.lexists(path):
        raise InvalidData(f"CIFAR-10 is incomplete: {path} is missing. {UNPACK}")
    with reading_as(InvalidData):
        content = read_bytes(path, UNPACK, MAX_PICKLE)
    rows = read(path, content)
    wrong = np.flatnonzero(rows[:, 0] >= len(CLASSES))
    if len(wrong):
        raise InvalidData(
            f"{path} is not a CIFAR-10 file: image {wrong[0]} has the label {rows[wrong[0], 0]}, "
            f"but labels are 0 to 9. {UNPACK}"
        )
    return rows


def _images(parts: list[Rows]) -> Images:
    rows = torch.from_numpy(np.concatenate(parts))
    return Images(rows[:, 1:].reshape(-1, 3, 32, 32).contiguous(), rows[:, 0].long(), MEAN, STD)


def _binary(path: Path, content: bytes) -> Rows:
    expected = IMAGES * (1 + PIXELS)
    if len(content) != expected:
        raise InvalidData(f"{path} has {len(content):,} bytes, but {IMAGES:,} images take {expected:,}. {UNPACK}")
    return np.frombuffer(content, np.uint8).reshape(IMAGES, 1 + PIXELS)


# -- the pickled layout -----------------------------------------------------------------------------------------------


class _Name:
    """A stand-in for one of the three functions that the files name. Calling it only records the call."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> _Call:
        return _Call(self.name, arguments)


class _Call:
    """A recorded call: the function, its arguments, and the state that the pickle sets on the result."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """An unpickler that accepts the three names of a pickled numpy array, and imports none of them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return _Name(name)
        if module in {"numpy.core.multiarray", "numpy._core.multiarray"} and name == "_reconstruct":
            return _Name(name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which CIFAR-10 files do not")


def _pickled(path: Path, content: bytes) -> Rows:
    try:
        require_bounded(BytesIO(content))
        found = _Unpickler(BytesIO(content), encoding="bytes").load()
        return _rows({_text(key): value for key, value in found.items()})
    except Exception as error:  # a damaged pickle raises nearly anything
        raise InvalidData(f"{path} is not a CIFAR-10 file ({str(error) or type(error).__name__}). {UNPACK}") from error


def _rows(content: Mapping[str, Any]) -> Rows:
    pixels = _array(content["data"])
    labels = content["labels"]
    # Each label is looked at before numpy sees the list: it would cut 0.7 to 0, and follow lists inside lists.
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError("its labels are not a list of whole numbers")
    if pixels.shape != (IMAGES, PIXELS) or len(labels) != IMAGES:
        raise ValueError(f"it holds {len(pixels):,} images and {len(labels):,} labels, not {IMAGES:,}")
    bounded = [label if 0 <= label < 255 else 255 for label in labels]  # 255 is rejected later, as every wrong label
    return np.concatenate([np.array(bounded, np.uint8)[:, None], pixels], axis=1)


def _array(call: _Call) -> Rows:
    """The array of bytes that a recorded call describes."""
    _, shape, dtype, by_columns, content = call.state
    kind = _text(dtype.arguments[0])
    if (call.name, dtype.name, kind) != ("_reconstruct", "dtype", "u1"):
        raise ValueError(f"its pixels are {kind}, not bytes")
    if by_columns:
        raise ValueError("its pixels are stored by columns")
    if not isinstance(content, bytes):
        raise ValueError("its pixels are not bytes")
    pixels: Rows = np.frombuffer(content, np.uint8).reshape(shape)
    return pixels


def _text(value: bytes | str) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
