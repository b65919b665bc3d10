"""Deployments: the conditions of a measurement, and deployments that this machine cannot measure."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

import aacp
from latency.own_int8 import OwnRuntime


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"runtime": "tflite"}, "no runtime 'tflite'"),
        ({"batch": 0}, "batch is 0, below 1"),
        ({"threads": 0}, "threads is 0, below 1"),
        ({"device": "tpu"}, "torch has no device 'tpu'"),
        ({"device": "cuda:99"}, "no device 'cuda:99'"),
        ({"runtime": "onnxruntime", "device": "cuda"}, "onnxruntime has no device 'cuda'. Use cpu"),
        ({"precision": "int4"}, "There is no precision 'int4'. Give int8, or choose from float32."),
        ({"precision": None}, "There is no precision None. Choose from float32, int8."),
        ({"precision": "int8"}, "torch cannot run networks in int8. Use the precision float32, or another runtime"),
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


def test_the_conditions_of_a_quantised_deployment_say_int8() -> None:
    where = aacp.Deployment(OwnRuntime(), precision="int8")
    conditions = aacp.conditions_here(nn.Conv2d(1, 1, 1), where)
    assert (conditions.runtime, conditions.precision) == ("own", "int8")
    assert aacp.conditions_here(nn.Conv2d(1, 1, 1), replace(where, precision="float32")).precision == "float32"


def test_conditions_of_another_precision_are_rejected() -> None:
    where = aacp.Deployment(OwnRuntime(), precision="int8")
    quantised = aacp.conditions_here(nn.Conv2d(1, 1, 1), where)
    plain = aacp.conditions_here(nn.Conv2d(1, 1, 1), replace(where, precision="float32"))
    with pytest.raises(aacp.DeviceMismatch, match="measured with precision 'float32', but precision 'int8' is"):
        plain.require(quantised)


def test_the_calibration_inputs_reach_the_runtime() -> None:
    images = ["first", "second"]
    runtime = aacp.Deployment(OwnRuntime(), precision="int8").runtime_calibrated_on(images)
    assert runtime.images == images  # type: ignore[attr-defined]
    assert aacp.Deployment(OwnRuntime(), precision="int8").resolved_runtime.images is None  # type: ignore[attr-defined]


def test_a_deployment_is_made_again_from_its_plain_data() -> None:
    where = aacp.Deployment("torch", batch=3)
    assert aacp.Deployment(**where.to_json()) == where
    older = {"runtime": "torch", "device": "cpu", "batch": 3, "threads": 2}  # written before there was a precision
    assert aacp.Deployment(**older) == where
