"""Provenance: the machine, versions and command behind a measurement."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import numpy as np

from aacp.disk.reading import read_text
from aacp.version import __version__


def processor() -> str:
    """The name of the processor, where the operating system reports one."""
    if os.path.exists("/proc/cpuinfo"):
        for line in read_text("/proc/cpuinfo").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """Processor, number of cores and operating system: timings made on one machine hold on another with the same."""
    return f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


@dataclass(frozen=True)
class Provenance:
    """The command, versions and hardware behind a table."""

    command: str
    versions: str
    hardware: str

    @classmethod
    def of(cls, command: str) -> Provenance:
        versions = f"aacp {__version__}, Python {platform.python_version()}, numpy {np.__version__}"
        return cls(command, versions, processor())

    def __str__(self) -> str:
        return f"command: {self.command}\nversions: {self.versions}\nhardware: {self.hardware}\n"
