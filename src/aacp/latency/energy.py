"""Energy counters that the platform offers: RAPL for Intel and AMD processors in Linux, NVML for NVIDIA GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aacp.disk.reading import read_text

POWERCAP = Path("/sys/class/powercap")  # where Linux shows RAPL; most systems let only root read the counters
NVML_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class EnergyCounter:
    """A counter that grows by the energy that a device uses, for whatever runs on it.

    Args:
        source: what counts: "RAPL package-0", for example.
        read: returns the joules so far.
        wraps_at: the joules at which the counter starts again from 0; None if it never does.
    """

    source: str
    read: Callable[[], float]
    wraps_at: float | None = None

    def since(self, before: float) -> float:
        """Return the joules since an earlier reading; the counter may have started again once in between."""
        used = self.read() - before
        return used + self.wraps_at if used < 0 and self.wraps_at is not None else used


def find_counters(device: str, powercap: Path = POWERCAP) -> list[EnergyCounter]:
    """Return the counters of a device such as "cpu" or "cuda:1": one for each package of the processor, or the GPU's.

    The list is empty if the platform has no counter or does not let this user read it.

    Args:
        device: the device that networks run on.
        powercap: the folder in which Linux shows RAPL.
    """
    kind, _, index = device.partition(":")
    if kind == "cuda":
        return _nvml_counters(int(index or 0))
    return _rapl_counters(powercap) if kind == "cpu" else []


def _rapl_counters(powercap: Path) -> list[EnergyCounter]:
    found = []
    for package in sorted(powercap.glob("*-rapl:[0-9]")):  # parts of a package have a second number
        with suppress(OSError, ValueError):
            name = read_text(package / "name").strip()
            if name == "psys":  # the whole machine, with the packages
                continue
            counter = EnergyCounter(
                source=f"RAPL {name}",
                read=lambda file=package / "energy_uj": 1e-6 * int(read_text(file)),  # type: ignore[misc]
                wraps_at=1e-6 * int(read_text(package / "max_energy_range_uj")),
            )
            counter.read()
            found.append(counter)
    return found


def _nvml_counters(index: int) -> list[EnergyCounter]:
    """The counter of a GPU, from the library that every NVIDIA driver brings along."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(NVML_LIBRARY)
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            return []

        def read() -> float:
            millijoules = ctypes.c_ulonglong()
            if library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)):
                raise OSError("the GPU does not count its energy")
            return millijoules.value / 1e3

        read()
        return [EnergyCounter("NVML", read)]
    return []
