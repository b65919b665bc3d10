"""Memory: how much of it is free, how much of it data may take, and how many processes prepare data."""

from __future__ import annotations

import ctypes
import os
import sys

import torch

from aacp.data.devices import usable_cores
from aacp.disk.reading import read_text

MAX_KEPT = 16 << 30  # bytes of data that one Batches keeps in the host's memory at most
KEPT_SHARE = 0.25  # share of the free memory, of the host or of a device, that one Batches takes at most
MAX_PREPARED = 512 << 20  # bytes of inputs that are normalised once and kept; more is kept as bytes
# Examples that a network is scored on at once by default, by device, and the bytes of their inputs at most: activations
# take many times as much. On a CPU larger batches are slower: the system maps what takes over 32 MB anew every time.
BATCH_SIZE = {"cpu": 64, "cuda": 500}
MAX_BATCH_BYTES = {"cpu": 4 << 20, "cuda": 512 << 20}
IMAGES_PER_WORKER = 64  # fewer images than this are prepared sooner than a worker process starts


def free_memory(device: torch.device | str = "cpu") -> int:
    """The free memory of a device in bytes; MAX_KEPT if it is not known."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = read_text("/proc/meminfo").splitlines() if os.path.exists("/proc/meminfo") else []
    available = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else MAX_KEPT


def room_for_data(device: torch.device | str) -> int:
    """The bytes of data that may be kept on a device; in the host's memory, MAX_KEPT is a further bound."""
    share = int(KEPT_SHARE * free_memory(device))
    return min(MAX_KEPT, share) if torch.device(device).type == "cpu" else share


def fitting_batch_size(most: int, bytes_per_example: int, device: torch.device) -> int:
    """The number of examples that a network reads at once: at most `most`, and fewer if their inputs are large."""
    bound = MAX_BATCH_BYTES.get(device.type, MAX_BATCH_BYTES["cpu"])
    return max(1, min(most, bound // max(1, bytes_per_example)))


def release_unused() -> None:
    """Give memory that this process has freed back to the system, as far as its C library can (glibc on Linux).

    Worker processes are forks: they would keep a copy of every page of it as soon as this process writes there again.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)  # type: ignore[union-attr]


def worker_count(images: int, ranks: int = 1) -> int:
    """How many processes prepare `images` for each of `ranks` processes that compute: one per core, fewer for few."""
    return min(max(1, usable_cores() // ranks), images // IMAGES_PER_WORKER)
