"""Seeding: every random choice of training follows from a seed and where it is made, so that a run can be resumed."""

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
    """A generator of its own, seeded by several numbers."""
    return torch.Generator().manual_seed(derived(*numbers))


@contextmanager
def global_seed(device: torch.device, *numbers: int) -> Iterator[None]:
    """Torch's global generators seeded, as dropout and transforms know no others, and put back afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derived(*numbers))
        yield


def seed_loader(loader: Any, *numbers: int) -> None:
    """Seed what a loader may draw from: torch's global generator, and those of its own."""
    seed = derived(*numbers)
    torch.manual_seed(seed)
    own, sampler = getattr(loader, "generator", None), getattr(loader, "sampler", None)
    for known in (own, getattr(sampler, "generator", None)):
        if isinstance(known, torch.Generator):
            known.manual_seed(seed)


def digest(tensors: Iterable[Tensor]) -> str:
    """A short fingerprint of tensors' shapes, types and values."""
    state = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        state.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
