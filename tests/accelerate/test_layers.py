"""Which runs and activations our layers are made for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from aacp.accelerate import layers
from aacp.accelerate.layers import is_supported_activation, is_supported_run
from train.small_data import network

GPU = SimpleNamespace(type="cuda")


@pytest.mark.slow
def test_a_run_must_be_in_bf16_on_one_gpu_and_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fabric(device: object = GPU, world_size: int = 1) -> object:
        return SimpleNamespace(device=device, world_size=world_size)

    model, half = network(), torch.bfloat16
    monkeypatch.setattr(layers, "half_type", lambda fabric: half)
    assert is_supported_run(model, fabric())  # type: ignore[arg-type]
    assert not is_supported_run(model, fabric(world_size=2))  # type: ignore[arg-type]
    assert not is_supported_run(model, fabric(SimpleNamespace(type="cpu")))  # type: ignore[arg-type]
    model.compile()
    assert not is_supported_run(model, fabric())  # type: ignore[arg-type]
    half = torch.float16
    assert not is_supported_run(network(), fabric())  # type: ignore[arg-type]


def test_activations_must_be_bf16_with_channels_last_on_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    assert not is_supported_activation(x, 3)
    monkeypatch.setattr(layers, "_is_on_current_gpu", lambda x: True)
    assert is_supported_activation(x, 3)
    assert not is_supported_activation(x.float(), 3)
    assert not is_supported_activation(x.contiguous(), 3)
    assert not is_supported_activation(x[:, :2], 2)
    assert not is_supported_activation(x[0], 3)
    assert not is_supported_activation(x, 4)
