"""GPUs: on which one work is recorded and streams are made. Recorders stand in for a machine with two GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aacp.pytorch.gpus import current_gpu, multiplies_bf16, recorded

SECOND = torch.device("cuda:1")


class Streams:
    """Which GPU and which stream are current, and what was done on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu = 0
        self.stream = "default"
        self.events: list[str] = []
        monkeypatch.setattr(torch.cuda, "device", self.device)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: self.on(stream.name))
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "Stream", self.new)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "a graph")
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.waiting(self.stream))

    def waiting(self, name: str, device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, device=device, wait_stream=lambda other: self.events.append(f"{name} waits for {other.name}")
        )

    def new(self, device: Any) -> SimpleNamespace:
        return self.waiting(f"new on {torch.device(device)}", device)

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before, self.gpu = self.gpu, torch.device(device).index
        yield
        self.gpu = before

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        before, self.stream = self.stream, name
        yield
        self.stream = before

    @contextmanager
    def graph(self, graph: str, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self.events.append(f"{graph} is recorded, {capture_error_mode}")
        with self.on(stream.name):
            yield

    def compute(self) -> str:
        self.events.append(f"computed on GPU {self.gpu}, {self.stream}")
        return "result"


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(monkeypatch)


@pytest.mark.parametrize("prepares", [True, False])
def test_a_computation_is_recorded_on_its_own_gpu_and_disturbs_no_other_thread(
    streams: Streams, prepares: bool
) -> None:
    assert recorded(streams.compute, SECOND, prepares=prepares) == ("a graph", "result")
    before = ["new on cuda:1 waits for default", "computed on GPU 1, new on cuda:1", "default waits for new on cuda:1"]
    assert streams.events == [
        *(before if prepares else []),
        *("a graph is recorded, thread_local", "computed on GPU 1, new on cuda:1"),
    ]
    assert (streams.gpu, streams.stream) == (0, "default")


def test_another_device_than_a_gpu_changes_nothing(streams: Streams) -> None:
    for device, gpu in ((SECOND, 1), ("cuda:1", 1), ("cpu", 0), (torch.device("meta"), 0)):
        with current_gpu(device):
            assert streams.gpu == gpu
    assert streams.gpu == 0


def test_emulated_bf16_does_not_count_and_each_gpu_is_asked(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def supports(including_emulation: bool = True) -> bool:
        return including_emulation or streams.gpu == 1

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supports)
    devices = ("cuda:0", "cuda:1", "cpu")
    assert [multiplies_bf16(torch.device(device)) for device in devices] == [False, True, False]
