"""Provenance: the machine, versions and command behind a measurement."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import numpy as np

from aacp.disk.reading import read_bytes
from aacp.version import __version__

# Where Linux names the board or the processor: a file, and the label of its line, if it has several.
NAMES = (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name"))


def processor() -> str:
    """The name of the board or the processor, where the operating system reports one."""
    for path, label in NAMES:
        if not os.path.exists(path):
            continue
        for line in read_bytes(path).decode(errors="replace").splitlines():
            if line.startswith(label):
                return (line.partition(":")[2] if label else line).strip("\0 ")
    return platform.machine() if platform.system() == "Linux" else platform.processor() or platform.machine()


def machine() -> str:
    """Processor, number of cores and operating system: timings made on one machine hold on another with the same.

    The programs that time networks on a device (runner.py, runner.sh) give a machine the same name.
    """
    name = f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return name.replace('"', "").replace("\\", "")


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
