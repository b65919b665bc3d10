"""Inputs in a file: one tensor of examples in a .safetensors or .npy file, with or without labels."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from aacp.data.splits import Data, Holdout
from aacp.disk.reading import open_file, reading_as
from aacp.disk.tensors import tensors_in
from aacp.errors import AACPError, InvalidData
from aacp.user.values import counted

LABELS = ("labels", "targets")  # possible names of the tensor of labels
NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}  # by version of the format
WRITE_AGAIN = "Write it again."


def tensor_file(path: str | os.PathLike[str], holdout: Holdout = None, seed: int = 0) -> Data:
    """Data from a file of examples, which is split into training data, hold-out and test data.

    A .npy file holds the inputs. A .safetensors file holds one tensor of inputs, of any name, and may hold another one
    named "labels" or "targets". Inputs are given to the network as they are, in single precision.

    Args:
        path: the file.
        holdout: the part that is held out for the search, of what the test data leave: a share, a number, or None for
            a tenth and at most 5,000.
        seed: chooses which examples are held out, and which are test data.
    """
    file = Path(path)
    if not os.path.lexists(file):
        raise InvalidData(f"There is no file {file}. Give the path of a .safetensors or .npy file.")
    inputs, labels = _read(file)
    _check(file, inputs, labels)
    if inputs.is_floating_point():
        inputs = inputs.float()
    source = inputs if labels is None else (inputs, labels.long())
    return Data.of(source, holdout=holdout, seed=seed, name=f"tensors:{file}")


def _read(file: Path) -> tuple[Tensor, Tensor | None]:
    """The inputs and the labels of a file."""
    if file.suffix not in (".safetensors", ".npy"):
        raise InvalidData(f"{file} is neither a .safetensors nor a .npy file. Write the inputs to one of these.")
    if file.suffix == ".npy":
        return _array(file), None
    with reading_as(InvalidData):
        tensors = tensors_in(file, WRITE_AGAIN)
    labels = [tensors.pop(name) for name in LABELS if name in tensors]
    if len(tensors) != 1 or len(labels) > 1:
        names = ", ".join(sorted(tensors)) or "none"
        raise InvalidData(
            f"{file} should hold one tensor of inputs, and may hold one named labels, but its other tensors are: "
            f"{names[:200]}. Write a file with these two."
        )
    return next(iter(tensors.values())), next(iter(labels), None)


def _array(file: Path) -> Tensor:
    """The array of a .npy file. Its header is compared with the length of the file before memory is allocated."""
    try:
        with reading_as(InvalidData), open_file(file, WRITE_AGAIN) as content:
            return torch.from_numpy(_parsed(content))
    except AACPError:
        raise
    except Exception as error:  # the header is parsed as Python text, which raises nearly anything
        words = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidData(f"{file} cannot be read as tensors: {words:.200}. {WRITE_AGAIN}") from error


def _parsed(content: BinaryIO) -> np.ndarray:
    version = npy.read_magic(content)
    if version not in NPY_HEADERS:
        raise ValueError(f"its format is {version}")
    shape, by_columns, kind = NPY_HEADERS[version](content)
    start = content.tell()
    found = content.seek(0, os.SEEK_END) - start
    if kind.hasobject or kind.fields is not None or kind.subdtype is not None:
        raise ValueError(f"its values are {kind}, not numbers")
    if kind.itemsize * math.prod(shape) != found:
        raise ValueError(f"{found:,} bytes follow its header, which describes values of type {kind} in shape {shape}")
    content.seek(start)
    values = np.frombuffer(bytearray(content.read(found)), kind)
    native = values.astype(kind.newbyteorder("="), copy=False)  # torch does not read numbers of another byte order
    return native.reshape(shape, order="F" if by_columns else "C")


def _check(file: Path, inputs: Tensor, labels: Tensor | None) -> None:
    if inputs.dim() < 2 or inputs.is_complex() or inputs.dtype in (torch.uint8, torch.bool) or not inputs.numel():
        raise InvalidData(
            f"The inputs in {file} are {inputs.dtype} of shape {tuple(inputs.shape)}, but a network reads numbers of "
            "shape (examples, ...). Normalise the images as for the network, and write them as float32."
        )
    if labels is not None and (labels.shape != inputs.shape[:1] or not _are_whole(labels)):
        raise InvalidData(
            f"The labels in {file} are {labels.dtype} of shape {tuple(labels.shape)} for "
            f"{counted(len(inputs), 'input')}. Give one whole number per input, or leave the labels out."
        )


def _are_whole(labels: Tensor) -> bool:
    return not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
