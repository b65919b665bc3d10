"""The description of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aacp.latency.devices import runner
from aacp.runs import provenance
from aacp.runs.provenance import machine, processor


def test_a_machine_is_its_processor_its_cores_and_its_system() -> None:
    assert processor() in machine()
    assert f"{os.cpu_count()} cores" in machine()
    assert machine() == machine()


@pytest.mark.parametrize(
    ("board", "cpuinfo", "name"),
    [
        ("Raspberry Pi 4 Model B Rev 1.4\0", "processor\t: 0\nBogoMIPS\t: 108.00\n", "Raspberry Pi 4 Model B Rev 1.4"),
        (None, 'processor\t: 0\nmodel name\t: Some "CPU" @ 2 GHz\n', "Some CPU @ 2 GHz"),
        (None, "processor\t: 0\nBogoMIPS\t: 108.00\n", None),
    ],
)
def test_the_program_for_devices_gives_a_machine_the_same_name(
    board: str | None, cpuinfo: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, content in (("model", board), ("cpuinfo", cpuinfo)):
        if content is not None:
            (tmp_path / file).write_text(content)
    places = ((str(tmp_path / "model"), ""), (str(tmp_path / "cpuinfo"), "model name"))
    for module in (provenance, runner):
        monkeypatch.setattr(module, "NAMES", places)
    assert machine() == runner.machine_name()
    assert name is None or machine().startswith(f"{name}, ")
