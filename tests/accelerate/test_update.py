"""Faster updates: which one a run gets, and that it computes the same as the plain update."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import aacp.accelerate
from aacp.accelerate import update
from aacp.accelerate.convolutions import FastConv2d, supported_convolutions
from aacp.accelerate.norms import FastBatchNorm2d, plain_batch_norms
from aacp.accelerate.update import ConcurrentUpdate, concurrent, faster_update, half_weights_for
from aacp.train.fabric import make_fabric
from aacp.train.recipe import Precision, Recipe
from aacp.train.session import Session
from aacp.train.sources import batches_of
from aacp.train.update import PlainUpdate
from train.small_data import network, same, small_images, weights

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.1, average=0.9, distillation=0.5)


def session_on_cpu(model: nn.Module, precision: Precision = "32-true") -> Session:
    fabric = make_fabric(precision, "cpu")
    return Session(model, batches_of(small_images(), RECIPE, fabric), RECIPE, fabric, network(5))


def plain_update(model: nn.Module, precision: Precision = "32-true") -> PlainUpdate:
    found = session_on_cpu(model, precision).update
    assert type(found) is PlainUpdate
    return found


def test_a_cpu_gets_the_plain_update() -> None:
    model = network()
    assert faster_update(plain_update(model), model) is None


def test_a_concurrent_update_on_a_cpu_is_the_plain_one_to_the_last_bit() -> None:
    found = []
    for is_plain in (True, False):
        model = network()
        session = session_on_cpu(model)
        assert isinstance(session.update, PlainUpdate)
        if not is_plain:
            session.update = concurrent(session.update, None)
        session.run_epoch(0)
        found.append(weights(model))
    assert same(*found)


def on_gpu(plain: PlainUpdate, processes: int = 1) -> PlainUpdate:
    """The same update with a fabric that claims to be on a GPU."""
    cuda = SimpleNamespace(device=SimpleNamespace(type="cuda"), world_size=processes, autocast=plain.fabric.autocast)
    return replace(plain, fabric=cuda)  # type: ignore[arg-type]


def test_one_gpu_gets_a_graph_but_several_processes_or_loss_scaling_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    halves: list[torch.dtype | None] = [None]
    monkeypatch.setattr(update, "half_type", lambda fabric: halves[0])
    monkeypatch.setattr(update, "CapturedUpdate", lambda inner: ("captured", inner))
    monkeypatch.setattr(update, "new_stream", lambda device: "a stream")
    model = network()
    plain = plain_update(model)

    def found(processes: int = 1) -> Any:
        return aacp.accelerate.update_for(on_gpu(plain, processes), model)

    captured, inner = found()
    assert captured == "captured"
    assert type(inner) is ConcurrentUpdate
    assert inner.half_weights is None
    assert inner.teacher_stream == "a stream"
    halves[0] = torch.bfloat16
    assert found()[1].half_weights is not None
    assert type(found(processes=2)) is ConcurrentUpdate
    assert found(processes=2).half_weights is None
    halves[0] = torch.float16
    assert type(found()) is ConcurrentUpdate


@pytest.mark.parametrize("processes", [1, 2])
def test_the_teacher_gets_the_fast_layers_of_the_student(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Any] = []
    monkeypatch.setattr(update, "share_with_teachers", lambda *given: shared.append(given))
    monkeypatch.setattr(update, "half_type", lambda fabric: None)
    monkeypatch.setattr(update, "CapturedUpdate", lambda inner: inner)
    monkeypatch.setattr(update, "new_stream", lambda device: "a stream")
    model = network()
    plain = plain_update(model)
    assert plain.teacher is not None
    faster_update(on_gpu(plain, processes), model)
    faster_update(replace(on_gpu(plain), teacher=None), model)
    given = (model, plain.teacher.networks)
    assert shared == [(*given, FastConv2d, supported_convolutions), (*given, FastBatchNorm2d, plain_batch_norms)]


def test_weights_are_copied_to_half_precision_unless_something_else_refers_to_them() -> None:
    def are_copied(model: nn.Module, precision: Precision = "bf16-mixed") -> bool:
        return half_weights_for(plain_update(model, precision), model) is not None

    assert are_copied(network())
    assert not are_copied(network(), "32-true")
    hooked, masked = network(), network()
    hooked[0].register_forward_pre_hook(lambda module, inputs: None)  # type: ignore[index,union-attr]
    masked[0].weight.register_hook(lambda gradient: gradient * 0)  # type: ignore[index,union-attr]
    assert not are_copied(hooked)
    assert not are_copied(masked)
