"""Energy counters, on a folder like the one that Linux shows RAPL in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aacp.latency.energy import EnergyCounter, find_counters


def package(powercap: Path, number: int, energy: str, limit: int = 1_000_000_000, name: str = "") -> Path:
    folder = powercap / f"intel-rapl:{number}"
    folder.mkdir()
    (folder / "name").write_text(f"{name or f'package-{number}'}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")
    (folder / "energy_uj").write_text(energy)
    return folder / "energy_uj"


def test_every_package_of_the_processor_has_a_counter_in_joules(tmp_path: Path) -> None:
    file = package(tmp_path, 0, "2000000\n")
    package(tmp_path, 1, "5000000\n")
    (tmp_path / "intel-rapl:0:0").mkdir()  # a part of a package, which its counter includes
    first, second = find_counters("cpu", tmp_path)
    assert (first.source, second.source) == ("RAPL package-0", "RAPL package-1")
    assert (first.read(), second.read()) == (2.0, 5.0)
    file.write_text("3500000\n")
    assert first.since(2.0) == 1.5
    assert second.since(5.0) == 0.0


def test_the_counter_of_the_whole_machine_is_not_added_to_those_of_its_packages(tmp_path: Path) -> None:
    package(tmp_path, 0, "2000000\n")
    package(tmp_path, 1, "5000000\n", name="psys")
    assert [counter.source for counter in find_counters("cpu", tmp_path)] == ["RAPL package-0"]


def test_a_counter_that_started_again_is_followed(tmp_path: Path) -> None:
    file = package(tmp_path, 0, "9000000\n", limit=10_000_000)
    (counter,) = find_counters("cpu", tmp_path)
    before = counter.read()
    file.write_text("500000\n")
    assert counter.since(before) == pytest.approx(1.5)


@pytest.mark.parametrize("content", ["", "many\n"])
def test_a_counter_that_cannot_be_read_is_left_out(tmp_path: Path, content: str) -> None:
    package(tmp_path, 0, content)
    assert find_counters("cpu", tmp_path) == []


def test_a_platform_without_counters_has_none(tmp_path: Path) -> None:
    assert find_counters("cpu", tmp_path / "missing") == []
    assert find_counters("npu", tmp_path) == []


def test_a_counter_that_never_starts_again_may_not_fall() -> None:
    assert EnergyCounter("NVML", lambda: 3.0).since(1.0) == 2.0


class FakeNvml:
    """A library like NVML with one GPU; its functions return 0 if they succeed."""

    def __init__(self, millijoules: int | None) -> None:
        self.millijoules = millijoules

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = 7 + index
        return 0 if index == 0 else 2

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, total: Any) -> int:
        if self.millijoules is None:
            return 3  # not supported
        assert handle.value == 7
        total._obj.value = self.millijoules
        return 0


def test_a_gpu_counts_in_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(2500)
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    (counter,) = find_counters("cuda")
    assert (counter.source, counter.read()) == ("NVML", 2.5)
    library.millijoules = 4000
    assert counter.since(2.5) == 1.5


@pytest.mark.parametrize(("device", "millijoules"), [("cuda:1", 2500), ("cuda:0", None)])
def test_a_gpu_that_is_not_there_or_does_not_count_has_no_counter(
    device: str, millijoules: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: FakeNvml(millijoules))
    assert find_counters(device) == []
