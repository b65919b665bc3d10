"""Deployments: the conditions of a measurement, and deployments that this machine cannot measure."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

import aacp


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"runtime": "tflite"}, "no runtime 'tflite'"),
        ({"batch": 0}, "batch is 0, below 1"),
        ({"threads": 0}, "threads is 0, below 1"),
        ({"device": "tpu"}, "torch has no device 'tpu'"),
        ({"device": "cuda:99"}, "no device 'cuda:99'"),
        ({"runtime": "onnxruntime", "device": "cuda"}, "onnxruntime has no device 'cuda'. Use cpu"),
    ],
)
def test_what_cannot_be_measured_here_is_rejected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        aacp.conditions_here(nn.Conv2d(1, 1, 1), replace(aacp.Deployment("torch"), **options))


def test_a_runtime_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *rest: object) -> object:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(aacp.MissingPackage, match="onnxruntime is not installed"):
        aacp.conditions_here(nn.Conv2d(1, 1, 1), aacp.Deployment("onnxruntime"))
