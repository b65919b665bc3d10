"""Provenance: where a measurement comes from, printed above every table."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aacp import __version__


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
        return f"command: {self.command}\nversions: {self.versions}\nhardware: {self.hardware}, one process\n"


def processor() -> str:
    """The processor's own name where the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
