"""CIFAR-10 from its canonical files, binary or pickled; the latter are read without creating what they ask for."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.data.images import Images
from aacp.data.splits import Data, split
from aacp.errors import InvalidData

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
PICTURES = 10_000  # in each file
PIXELS = 3 * 32 * 32
# What the public checkpoints were trained with: ImageNet's statistics.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Rows = NDArray[np.uint8]  # a label and its pixels: 1 + 3 x 32 x 32 bytes
Reader = Callable[[Path], Rows]


def cifar10(
    path: str | os.PathLike[str],
    holdout: float = 0.1,
    seed: int = 0,
    mean: tuple[float, ...] = MEAN,
    std: tuple[float, ...] = STD,
) -> Data:
    """CIFAR-10 of a folder: `holdout` of the 50,000 training pictures for the search, and the 10,000 for testing."""
    read = _reader(Path(path))
    training, test = (_images([read(name) for name in names], mean, std) for names in (TRAINING, TEST))
    rest, held = split(training.labels, holdout, seed)
    train = replace(training.subset(rest), padding=4, flip=True)
    return Data(train, training.subset(held), test, "cifar10", CLASSES)


def _reader(path: Path) -> Callable[[str], Rows]:
    """How to read a file by its bare name from the folder, or from the canonical folder within it."""
    for folder in (path / "cifar-10-batches-bin", path / "cifar-10-batches-py", path):
        if (folder / "test_batch.bin").exists():
            return lambda name: _checked(folder / f"{name}.bin", _binary)
        if (folder / "test_batch").exists():
            return lambda name: _checked(folder / name, _pickled)
    raise InvalidData(
        f"{path} holds no CIFAR-10: there is neither test_batch.bin nor test_batch, in it or in cifar-10-batches-bin "
        "or cifar-10-batches-py. Name the folder the archive was unpacked in."
    )


def _checked(path: Path, read: Reader) -> Rows:
    if not path.is_file():
        raise InvalidData(f"CIFAR-10 is not whole: {path} is missing. Unpack the archive again.")
    rows = read(path)
    strange = np.flatnonzero(rows[:, 0] >= len(CLASSES))
    if len(strange):
        raise InvalidData(
            f"{path} is no CIFAR-10 file: picture {strange[0]} has the label {rows[strange[0], 0]}, "
            "but labels are 0 to 9. Unpack the archive again."
        )
    return rows


def _images(parts: list[Rows], mean: tuple[float, ...], std: tuple[float, ...]) -> Images:
    rows = torch.from_numpy(np.concatenate(parts))
    return Images(rows[:, 1:].reshape(-1, 3, 32, 32).contiguous(), rows[:, 0].long(), mean, std)


def _binary(path: Path) -> Rows:
    found, due = path.stat().st_size, PICTURES * (1 + PIXELS)
    if found != due:
        raise InvalidData(
            f"{path} has {found:,} bytes, but {PICTURES:,} pictures take {due:,}. Unpack the archive again."
        )
    return np.fromfile(path, np.uint8).reshape(PICTURES, 1 + PIXELS)


# -- the pickled layout -----------------------------------------------------------------------------------------------


class _Name:
    """Stands for one of the three functions the files name; calling it records the call and does nothing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> _Call:
        return _Call(self.name, arguments)


class _Call:
    """What a file asked for: a function, its arguments and the state of what it would have made."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows three names, those of a numpy array, and imports none of them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return _Name(name)
        if module in {"numpy.core.multiarray", "numpy._core.multiarray"} and name == "_reconstruct":
            return _Name(name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no CIFAR-10 file does")


def _pickled(path: Path) -> Rows:
    try:
        with path.open("rb") as file:
            found = _Unpickler(file, encoding="bytes").load()
        content = {_text(key): value for key, value in found.items()}
        return _rows(content)
    except Exception as error:  # a damaged pickle raises nearly anything
        raise InvalidData(
            f"{path} is no CIFAR-10 file ({str(error) or type(error).__name__}). Unpack the archive again."
        ) from error


def _rows(content: Mapping[str, Any]) -> Rows:
    pixels = _array(content["data"])
    labels = np.array(content["labels"], np.int64)
    if pixels.shape != (PICTURES, PIXELS) or labels.shape != (PICTURES,):
        raise ValueError(f"it holds {len(pixels):,} pictures and {labels.size:,} labels, not {PICTURES:,}")
    labels = np.where((labels < 0) | (labels > 255), 255, labels)  # strange ones stay strange as bytes
    return np.concatenate([labels.astype(np.uint8)[:, None], pixels], axis=1)


def _array(call: _Call) -> Rows:
    """The array of bytes that a recorded call describes."""
    _, shape, dtype, by_columns, content = call.state
    kind = _text(dtype.arguments[0])
    if (call.name, dtype.name, kind) != ("_reconstruct", "dtype", "u1"):
        raise ValueError(f"its pixels are {kind}, not bytes")
    if by_columns:
        raise ValueError("its pixels are stored by columns")
    pixels: Rows = np.frombuffer(content, np.uint8).reshape(shape)
    return pixels


def _text(value: bytes | str) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
