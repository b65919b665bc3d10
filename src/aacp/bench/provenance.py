"""Provenance: where a measurement comes from, printed above every table."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

from aacp import __version__
from aacp.machine import processor as processor


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
