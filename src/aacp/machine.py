"""The machine that something was measured on, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """The processor's own name where the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """Processor, cores and system: what two machines must share for timings of one to hold on the other."""
    return f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
