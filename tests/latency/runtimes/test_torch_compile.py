"""torch.compile is one of the runtimes of test_every_runtime; here is what happens if it cannot compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.runtimes.torch_compile import TorchCompile


def test_a_failed_compilation_names_the_network_and_another_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("No working C++ compiler was found")

    monkeypatch.setattr(nn.Module, "compile", broken)
    message = (
        r"Conv2d cannot be compiled: RuntimeError: No working C\+\+ compiler was found\. Check .* the runtime torch"
    )
    with pytest.raises(aacp.ExportFailed, match=message):
        TorchCompile().prepare(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8), device="cpu", threads=1)


def test_two_networks_of_one_class_are_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(module))
    for channels in (4, 8):
        TorchCompile().prepare(nn.Conv2d(3, channels, 3).eval(), torch.zeros(1, 3, 8, 8), device="cpu", threads=1)
    first, second = (type(module).forward.__code__ for module in compiled)
    assert first is not second


def test_files_are_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"torch runs modules, but network\.onnx is a file"):
        aacp.time_networks({"a": "network.onnx"}, torch.zeros(1, 3, 8, 8), aacp.Deployment("torch-compile"))
