"""Devices: every function that takes a device rejects one that is missing, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from aacp.data.devices import device_of, usable_cores

MISSING = [
    ("gpu", r"'gpu' is not a device\. Use cpu, cuda, or"),
    ("cuda", r"This machine has no CUDA device, so 'cuda' cannot be used\. Use"),
    ("meta", r"This machine has no device 'meta'\. Use"),
]
RECIPE = aacp.Recipe(epochs=1, batch_size=4, lr=0.1)
CALLS: dict[str, Callable[..., Any]] = {
    "prune": lambda model, data, place, device: aacp.prune(model, data, {"macs": 0.5}, place, device=device),
    "sweep": lambda model, data, place, device: aacp.sweep(model, data, [{"macs": 0.5}], place, device=device),
    "fit": lambda model, data, place, device: aacp.fit(model, data, RECIPE, folder=place, device=device),
    "finetune": lambda model, data, place, device: aacp.finetune(model, data, RECIPE, folder=place, device=device),
}


def have_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("device", "message"), MISSING)
def test_calls_reject_a_device_that_is_not_here(
    call: str, device: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_gpus(monkeypatch, 0)
    part = torch.randn(20, 3, 8, 8), torch.arange(20) % 2
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(aacp.InvalidOption, match=message):
        CALLS[call](model, aacp.Data.of(part, part), tmp_path / "run", device)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("device", "message"), MISSING)
@pytest.mark.parametrize("command", [("prune", "--prune-macs", "0.5"), ("evaluate",)])
def test_commands_say_so_in_one_line(
    command: tuple[str, ...], device: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_gpus(monkeypatch, 0)
    name, *options = command
    place = ("--run", str(tmp_path / "run")) if name == "prune" else ()
    found = CliRunner().invoke(main, (name, "digits_resnet", "--data", "digits", *options, *place, "--device", device))
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1), found.output
    assert found.stderr.startswith("InvalidOption: ")
    assert not (tmp_path / "run").exists()


def test_a_gpu_beyond_the_last_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    have_gpus(monkeypatch, 2)
    assert [str(device_of(name)) for name in (None, "cuda", "cuda:1", "cpu")] == ["cuda", "cuda", "cuda:1", "cpu"]
    with pytest.raises(aacp.InvalidOption, match=r"'cuda:2' is not one of the 2 GPUs of this machine\. Use"):
        device_of("cuda:2")
    with pytest.raises(aacp.InvalidOption, match=r"3 GPUs are needed, but this machine has 2\. Use"):
        device_of("cuda", processes=3)
    with pytest.raises(aacp.InvalidOption, match=r"cuda:1 is one device, but 2 processes need one each\. Use cuda"):
        device_of("cuda:1", processes=2)


def test_the_gpu_that_was_chosen_with_set_device_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fabric trains on the first GPU if a device has no index."""
    have_gpus(monkeypatch, 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [str(device_of(name)) for name in (None, "cuda", "cuda:0", "cpu")] == ["cuda:1", "cuda:1", "cuda:0", "cpu"]
    assert device_of("cuda", processes=2) == torch.device("cuda")


def test_the_cpu_is_one_device() -> None:
    part = torch.randn(8, 3, 8, 8), torch.arange(8) % 2
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    assert aacp.fit(model, part, RECIPE, device="cpu:0").last.epoch == 1


def test_usable_cores_are_those_of_the_process_or_else_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS and Windows
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
