"""The description of the machine."""

from __future__ import annotations

import os

from aacp.runs.provenance import machine, processor


def test_a_machine_is_its_processor_its_cores_and_its_system() -> None:
    assert processor() in machine()
    assert f"{os.cpu_count()} cores" in machine()
    assert machine() == machine()
