"""Devices: which one a name means, whether this machine has it, and how many processor cores may be used."""

from __future__ import annotations

import os

import torch

from aacp.errors import InvalidOption


def device_of(device: torch.device | str | None = None, processes: int = 1) -> torch.device:
    """The device that is named, or else the GPU if there is one; what this machine does not have is refused."""
    place = _named(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cpu":
        return torch.device("cpu")  # all cores are one device
    if place.index and processes > 1:
        raise InvalidOption(
            f"{place} is one device, but {processes} processes need one each. Use {place.type} for all."
        )
    if place.type == "cuda":
        _require_gpus(max(processes, (place.index or 0) + 1))
    elif place.type not in _other_accelerators():
        raise InvalidOption(f"There is no device {str(place)!r} here. Use a device that is here, such as cpu.")
    return place


def usable_cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _named(name: torch.device | str) -> torch.device:
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InvalidOption(f"{name!r} is no device. Use cpu, cuda, or cuda:1 for the second GPU.") from error


def _require_gpus(wanted: int) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted > count:
        there = "There is no CUDA device here" if not count else f"{wanted} GPUs are needed, but {count} are here"
        raise InvalidOption(f"{there}. Use a device that is here, such as cpu, or fewer processes.")


def _other_accelerators() -> tuple[str, ...]:
    """The kind that torch has here, such as mps, if any."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return () if found is None else (found.type,)
