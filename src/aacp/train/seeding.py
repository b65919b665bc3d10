"""Seeds for every random choice of training, computed from the recipe's seed and the epoch, so that runs can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def derived(*numbers: int) -> int:
    """One seed from several numbers, such as (seed, epoch, rank)."""
    text = ",".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*numbers: int) -> torch.Generator:
    """A new generator, seeded by several numbers."""
    return torch.Generator().manual_seed(derived(*numbers))


@contextmanager
def global_seed(device: torch.device, *numbers: int) -> Iterator[None]:
    """Seed torch's global generators, which dropout and transforms use, and restore their state afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derived(*numbers))
        yield


def seed_loader(loader: Any, *numbers: int) -> None:
    """Seed the generators that a loader may use: torch's global one, its own, and its sampler's."""
    seed = derived(*numbers)
    torch.manual_seed(seed)
    sampler = getattr(loader, "sampler", None)
    for owner in (loader, sampler):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def digest(tensors: Iterable[Tensor]) -> str:
    """A short hash of the shapes, types and values of tensors."""
    state = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        state.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
