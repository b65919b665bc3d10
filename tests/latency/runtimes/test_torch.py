"""In torch a piece begins where a layer does, and the pieces add up to the run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.layers import is_layer
from aacp.latency.runtimes.runtime import TimedLayer
from aacp.latency.runtimes.torch import TorchPieces, TorchRuntime, seconds_between


class Clock:
    """A clock that only modules of this test move forward."""

    now = 0.0

    def __call__(self) -> float:
        return Clock.now


class Slow(nn.Module):
    """A module that takes a known time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Clock.now += self.seconds
        return x


def test_what_runs_before_the_first_layer_belongs_to_it() -> None:
    assert seconds_between([0, 1, 3, 6]) == [3, 3]
    assert seconds_between([0, 1, 3, 6, 10]) == [3, 3, 4]
    assert seconds_between([0, 4]) == [4]


def test_a_piece_is_a_layer_and_what_follows_it() -> None:
    model = nn.Sequential(
        Slow(1), nn.Conv2d(3, 4, 1), Slow(2), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), Slow(4)
    )
    pieces = TorchPieces(model, torch.randn(1, 3, 4, 4), is_layer, "cpu", Clock())
    for _ in range(3):
        pieces.run_timed()
    assert pieces.take_recorded() == [[3, 0, 4]] * 3
    pieces.run()
    assert pieces.take_recorded() == []


def test_pieces_are_timed_by_the_clock_of_the_runtime() -> None:
    class Simulated(TorchRuntime):
        def clock(self) -> float:
            return Clock.now

    model = nn.Sequential(nn.Conv2d(3, 4, 1), Slow(2), nn.Conv2d(4, 4, 1), Slow(4))
    layers = [TimedLayer(name, True, (4, 4), 4, 1) for name in ("0", "2")]
    pieces = Simulated().prepare_pieces(model, torch.randn(1, 3, 4, 4), layers, device="cpu", threads=1)
    pieces.run_timed()
    assert pieces.take_recorded() == [[2, 4]]


def test_a_gpu_that_is_not_there_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    TorchRuntime().require_device("cuda")
    with pytest.raises(aacp.InvalidOption, match="has 1 GPU, so there is no device 'cuda:1'"):
        TorchRuntime().require_device("cuda:1")


@pytest.mark.parametrize("device", ["cuda:x", "cuda:-1", "cuda:", "cpu:x"])
def test_an_index_that_is_no_number_is_rejected(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(aacp.InvalidOption, match=rf"'{device}' is not a device\. Use cpu, cuda, or cuda:1"):
        TorchRuntime().require_device(device)


def test_files_are_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"torch runs modules, but network\.onnx is a file"):
        aacp.time_networks({"a": "network.onnx"}, torch.zeros(1, 3, 8, 8), aacp.Deployment("torch"))
