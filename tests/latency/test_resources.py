"""Memory and energy of a network, measured in a process of its own."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.artefact.onnx import export_onnx
from aacp.latency import resources
from aacp.latency.energy import EnergyCounter
from aacp.latency.resources import ResourceUse, measure_resources, resources_of
from aacp.latency.runtimes.registry import BUILT_IN, find_runtime

ONE_THREAD = aacp.Deployment(threads=1)
EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
def test_the_memory_is_that_of_the_network_and_its_largest_moment() -> None:
    """40 MB of weights stay, 80 MB are in use for a moment, and what was there before does not count."""
    kept = np.ones(10_000_000)
    float(np.ones(40_000_000)[0])  # an earlier peak of 320 MB
    held: list[np.ndarray] = []
    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier tests have freed, and that the process still holds

    def prepare():
        held.append(np.ones(5_000_000))  # numpy fills 40 MB
        return lambda: float(np.ones(10_000_000)[0])  # and 80 MB in each batch

    found = resources_of(prepare, "cpu", seconds=0.0)
    assert found.memory_bytes == pytest.approx(120e6, rel=0.05)  # the kernel counts pages in batches
    assert len(kept) == 10_000_000


def test_the_energy_is_that_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter grows by 3 J with every batch, and by 100 J while the network is loaded."""
    joules = [0.0]

    def prepare():
        joules[0] += 100

        def run() -> None:
            joules[0] += 3

        return run

    monkeypatch.setattr(resources, "find_counters", lambda device: [EnergyCounter("test", lambda: joules[0])])
    found = resources_of(prepare, "cpu", seconds=0.02)
    assert found.joules == pytest.approx(3)
    assert str(found).endswith("3,000 mJ per batch (test)")


def test_the_energy_of_a_runtime_of_your_own_on_a_gpu_is_that_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(resources, "find_counters", lambda device: asked.append(device) or [])
    resources_of(lambda: lambda: None, "cuda:1", seconds=0.0)
    assert asked == ["cuda:1"]


def test_no_built_in_runtime_measures_gpus_as_the_page_says() -> None:
    runtimes = [find_runtime(name) for name in BUILT_IN]
    on_gpu = [runtime for runtime in runtimes if runtime.runs_on("cuda")]
    assert [runtime.name for runtime in on_gpu if runtime.suffix is not None] == []
    page = " ".join((Path(__file__).parents[2] / "docs" / "latency.md").read_text().split())
    names = ", ".join(f"`{name}`" for name in ("torch", "torch-compile", "cuda-graphs"))
    assert {runtime.name for runtime in on_gpu} == {"torch", "torch-compile", "cuda-graphs"}
    assert f"the runtimes that run on GPUs ({names}) have none and are rejected" in page


def test_without_a_counter_there_is_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "find_counters", lambda device: [])
    found = resources_of(lambda: lambda: None, "cpu", seconds=0.0)
    assert (found.joules, found.energy_source) == (None, "")
    assert str(ResourceUse(2_500_000)) == "2.5 MB of memory, energy is not counted here"


@pytest.mark.slow
def test_the_memory_in_a_runtime_holds_the_weights(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 1024, 3), nn.Conv2d(1024, 1024, 3), nn.Flatten()).eval()
    file = tmp_path / "wide.onnx"
    export_onnx(network, file, EXAMPLE)
    needed = measure_resources(file, EXAMPLE, ONE_THREAD, seconds=0.01).memory_bytes
    assert needed > 4 * 1024 * 1024 * 9  # a network of 8 channels needs about a quarter of that


@pytest.mark.slow
def test_a_file_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "network.onnx"
    file.write_bytes(b"no network")
    with pytest.raises(
        aacp.WorkerFailed, match=r"network.onnx cannot be measured: ONNX Runtime cannot open .*Check that"
    ):
        measure_resources(file, EXAMPLE, ONE_THREAD)


def test_a_runtime_without_files_is_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"runtime torch cannot be measured.* such as onnxruntime"):
        measure_resources("network.pt", EXAMPLE, aacp.Deployment("torch"))
