"""Inputs in a file: one tensor of examples in a .safetensors or .npy file, with or without labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from aacp.data.splits import Data, Holdout
from aacp.errors import InvalidData

LABELS = ("labels", "targets")  # possible names of the tensor of labels


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
    if not file.is_file():
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
    try:
        if file.suffix == ".npy":
            return torch.from_numpy(np.load(file, allow_pickle=False)), None
        tensors = load_file(file)
    except (SafetensorError, ValueError, TypeError, EOFError, OSError) as error:
        raise InvalidData(f"{file} cannot be read as tensors: {error}. Write it again.") from error
    labels = [tensors.pop(name) for name in LABELS if name in tensors]
    if len(tensors) != 1 or len(labels) > 1:
        names = ", ".join(tensors) or "none"
        raise InvalidData(
            f"{file} should hold one tensor of inputs, and may hold one named labels, but its other tensors are: "
            f"{names}. Write a file with these two."
        )
    return next(iter(tensors.values())), next(iter(labels), None)


def _check(file: Path, inputs: Tensor, labels: Tensor | None) -> None:
    if inputs.dim() < 2 or inputs.is_complex() or inputs.dtype in (torch.uint8, torch.bool):
        raise InvalidData(
            f"The inputs in {file} are {inputs.dtype} of shape {tuple(inputs.shape)}, but a network reads numbers of "
            "shape (examples, ...). Normalise the images as for the network, and write them as float32."
        )
    if labels is not None and (labels.shape != inputs.shape[:1] or labels.is_floating_point()):
        raise InvalidData(
            f"The labels in {file} are {labels.dtype} of shape {tuple(labels.shape)} for {len(inputs)} inputs. Give "
            "one whole number per input, or leave the labels out."
        )
