"""Weights from files: safetensors, or torch files that hold nothing but tensors and plain values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from aacp.errors import InvalidWeights
from aacp.torch_internals import COMPILED_PREFIX

PLACES = ("state_dict", "model")  # keys under which training scripts save the state dict beside other values
PREFIXES = ("module.", COMPILED_PREFIX)  # added to every name by torch's parallel wrappers and by torch.compile
SHOWN = 20  # at most this many keys of each kind are listed in an error


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load the weights of a file into the network; if any tensor does not fit, nothing is changed."""
    own = model.state_dict()
    weights = _without_prefixes(read_weights(path), own)
    mismatches = _mismatches(own, weights)
    if mismatches:
        raise InvalidWeights(
            f"{path} does not fit {type(model).__name__}: {'; '.join(mismatches)}. "
            "Build the network these weights were trained with, or name another file."
        )
    model.load_state_dict(weights, strict=False)  # not strict: old files lack num_batches_tracked of batch norms


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU. Anything but tensors and plain values is rejected, never executed."""
    path = Path(path)
    if not path.is_file():
        raise InvalidWeights(f"There is no file {path}. Name a safetensors file or one written by torch.save.")
    try:
        found = load_file(path) if _is_safetensors(path) else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # torch alone raises five classes of exception
        raise InvalidWeights(
            f"{path} cannot be read as weights ({_reason(error)}). "
            "Save model.state_dict() with safetensors or torch.save."
        ) from error
    return _state_dict(path, found)


def _is_safetensors(path: Path) -> bool:
    """Whether a JSON header follows its length of eight bytes; the suffix of the file may be wrong."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


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


def _without_prefixes(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights without a wrapper's prefix on every name, unless the network has that prefix too."""
    for prefix in PREFIXES:
        while all(name.startswith(prefix) for name in weights) and not any(name.startswith(prefix) for name in own):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _mismatches(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[str]:
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in own]
    shapes = [
        f"{name} ({_sizes(weights[name])} in the file, {_sizes(own[name])} in the network)"
        for name in own
        if name in weights and weights[name].shape != own[name].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    return [f"{kind} {_listed(names)}" for kind, names in kinds.items() if names]


def _sizes(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest


def _reason(error: Exception) -> str:
    """Why a file was rejected, in a few words: torch's own messages end with the advice to execute the file."""
    named = re.search(r"GLOBAL (\S+)", str(error))
    if named:
        return f"it names {named[1]}, which is neither a tensor nor a plain value"
    return re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".") or type(error).__name__
