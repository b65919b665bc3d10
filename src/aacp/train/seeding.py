"""Seeds for every random choice of training, computed from the recipe's seed and the epoch, so that runs can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from aacp.data.seeding import derived


def generator(*numbers: int) -> torch.Generator:
    """A new generator, seeded by several numbers."""
    return torch.Generator().manual_seed(derived(*numbers))


@contextmanager
def global_seed(device: torch.device, *numbers: int) -> Iterator[None]:
    """Seed torch's global generators, which dropout and transforms use, and restore their state afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derived(*numbers))
        yield


def digest(tensors: Iterable[Tensor]) -> str:
    """A short hash of the shapes, types and values of tensors."""
    state = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        state.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
