"""Devices: which one a name means, whether this machine has it, and how many processor cores may be used."""

from __future__ import annotations

import os

import torch

from aacp.errors import InvalidOption


def device_of(device: torch.device | str | None = None, processes: int = 1) -> torch.device:
    """The named device, or by default the current GPU if there is one. A device that this machine lacks is rejected.

    With several processes, `device` is the type that each of them uses one device of.
    """
    place = _named(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cpu":
        return torch.device("cpu")  # without an index: all cores are one device
    if place.index and processes > 1:
        raise InvalidOption(
            f"{place} is one device, but {processes} processes need one each. Use {place.type} for all."
        )
    if place.type == "cuda":
        _require_gpus(place, processes)
        if place.index is None and processes == 1:
            return _current_gpu()
    elif place.type not in _other_accelerators():
        raise InvalidOption(f"This machine has no device {str(place)!r}. Use a device that it has, such as cpu.")
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
        raise InvalidOption(f"{name!r} is not a device. Use cpu, cuda, or cuda:1 for the second GPU.") from error


def _require_gpus(place: torch.device, processes: int) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        found = f"This machine has no CUDA device, so {str(place)!r} cannot be used"
    elif processes > count:
        found = f"{processes} GPUs are needed, but this machine has {count}"
    elif (place.index or 0) >= count:
        found = f"{str(place)!r} is not one of the {count} GPUs of this machine"
    else:
        return
    raise InvalidOption(f"{found}. Use a device that it has, such as cpu, or fewer processes.")


def _current_gpu() -> torch.device:
    """The GPU that `torch.cuda.set_device` has chosen; it has no index if that is the first one, as by default."""
    is_initialised: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    index = torch.cuda.current_device() if is_initialised else 0
    return torch.device("cuda", index) if index else torch.device("cuda")


def _other_accelerators() -> tuple[str, ...]:
    """The types of accelerator besides CUDA that torch finds on this machine, such as mps."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return () if found is None else (found.type,)
