"""Seeds for data that a user's loader or data set draws at random, so that every pass over it is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def derived(*numbers: int) -> int:
    """One seed from several numbers, such as (seed, epoch, rank)."""
    text = ",".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_loader(loader: Any, seed: int, epoch: int) -> None:
    """Seed what a loader may draw from in an epoch: torch's global generator, and those of the loader and its parts."""
    drawn = derived(seed, epoch)
    torch.manual_seed(drawn)
    _begin_pass(loader, drawn, epoch)


def samplers_of(loader: Any) -> tuple[Any, ...]:
    """The objects that order the examples of a loader, with None where it has none."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    return batch_sampler, getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)


def _begin_pass(loader: Any, seed: int, epoch: int) -> None:
    """Seed the generators of a loader and its parts, and give the epoch to those that draw from its number.

    Without it, samplers with `set_epoch`, such as torch's DistributedSampler, have the same order in every epoch.
    """
    for owner in (loader, *samplers_of(loader), getattr(loader, "dataset", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        set_epoch = getattr(owner, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def seeded_pass(loader: Iterable[Any]) -> Iterator[Any]:
    """One pass over a loader that shuffles and augments alike in every pass.

    The loader draws from a state of torch's global generator that is its own, so that neither the code between two
    batches nor the loader changes the random numbers of the other.
    """
    outside = torch.get_rng_state()
    torch.default_generator.manual_seed(derived(0))  # of the CPU alone: a network may draw on the GPU in between
    _begin_pass(loader, derived(0), 0)
    batches = iter(loader)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        finally:
            inside = torch.get_rng_state()
            torch.set_rng_state(outside)
        yield batch
        outside = torch.get_rng_state()
        torch.set_rng_state(inside)
