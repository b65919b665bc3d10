"""The caller's model is never changed, even after a failure."""

from __future__ import annotations

import enum
import logging
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp


class Watched(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Conv2d(8, 4, 1)
        self.width, self.fails = 8, fails

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        if self.fails and y.sum() > 0:  # control flow that depends on the data
            y = -y
        return self.head(y.view(-1, self.width, *y.shape[2:]))


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {
        "training": [module.training for module in model.modules()],
        "state": {key: value.clone() for key, value in model.state_dict().items()},
        "identity": [id(p) for p in model.parameters()],
        "gradients": [p.requires_grad for p in model.parameters()],
        "grad": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "numbers": [{k: type(v) for k, v in vars(m).items()} for m in model.modules()],
        "device": [p.device for p in model.parameters()],
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    states = before.pop("state"), after.pop("state")
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    grads = before.pop("grad"), after.pop("grad")
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert before == after


@pytest.mark.parametrize("fails", [False, True])
def test_mode_weights_hooks_gradients_and_numbers_are_as_before(fails: bool) -> None:
    model = Watched(fails).train()
    model.norm.eval()
    model.conv.weight.requires_grad_(False)
    model.head.register_forward_hook(lambda module, args, output: None)
    model.norm.weight.grad = torch.ones(8)
    before = snapshot(model)
    random_state = torch.get_rng_state()
    if fails:
        with pytest.raises(aacp.UntraceableModel, match="control flow"):
            aacp.trace(model, torch.randn(2, 3, 8, 8))
    else:
        random_state = torch.get_rng_state()
        x = torch.randn(2, 3, 8, 8)
        torch.set_rng_state(random_state)
        graph = aacp.trace(model, x)
        smaller = aacp.shrink(model, graph, {"conv": 3})
        smaller.conv.weight.data.zero_()
        smaller.head.bias.data.zero_()
        assert torch.equal(torch.get_rng_state(), random_state)
        assert smaller.training
        assert not smaller.norm.training
        assert not smaller.conv.weight.requires_grad
        assert smaller.width == 3
    assert_same(before, snapshot(model))


def test_a_network_that_keeps_a_cache_is_traced_as_it_was_given() -> None:
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
            self.ramp = torch.zeros(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            if self.ramp.shape[1] != x.shape[3]:
                self.ramp = torch.arange(x.shape[3], dtype=x.dtype).reshape(1, -1)
            return self.b(self.a(x) + self.ramp)

    model, x = Caching(), torch.randn(1, 3, 5, 5)
    graph = aacp.trace(model, x)
    assert [group.name for group in graph.free] == ["a"]
    assert model.ramp.shape == (1, 1)
    smaller = aacp.shrink(model, graph, {"a": [1, 4]})
    hidden = model.a(x)[:, [1, 4]] + torch.arange(5.0)
    torch.testing.assert_close(smaller(x), nn.functional.conv2d(hidden, model.b.weight[:, [1, 4]], model.b.bias))


def test_hooks_and_closures_of_the_copy_leave_the_caller_alone() -> None:
    seen: list[type] = []

    class Hooked(nn.Module):
        """A hook that keeps features in the model, and a function that has closed over it."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)
            self.features: dict[str, Tensor] = {}
            self.a.register_forward_hook(lambda module, args, out: self.features.update(a=out.detach()))
            self.a.register_forward_hook(lambda module, args, out: seen.append(type(out)))
            self.middle = lambda x, *, scale=2.0: scale * self.norm(self.a(x))

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.middle(x))

    model, x = Hooked().train(), torch.randn(2, 3, 4, 4)
    before = model.norm.running_mean.clone()
    graph = aacp.trace(model, x)
    assert [group.name for group in graph.free] == ["a"]
    assert seen == []
    assert model.features == {}
    assert torch.equal(model.norm.running_mean, before)
    smaller = aacp.shrink(model, graph, {"a": 3})
    smaller(x)
    assert torch.equal(model.norm.running_mean, before)
    assert smaller.norm.running_mean.shape == (3,)


class Kind(enum.Enum):
    WIDE = 1


def test_objects_that_all_code_shares_are_left_alone() -> None:
    model = Watched()
    model.kind = Kind.WIDE  # type: ignore[assignment]
    model.logger = logging.getLogger("of.a.network")  # type: ignore[assignment]
    aacp.trace(model, torch.randn(1, 3, 8, 8))
    assert type(Kind.WIDE.value) is int
    assert type(logging.getLogger("of.a.network").level) is int
    assert pickle.loads(pickle.dumps(Kind.WIDE)) is Kind.WIDE


def test_a_network_that_draws_random_numbers_leaves_the_generator_as_it_was() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x) + 0 * torch.rand(1))

    model, x = Noisy(), torch.randn(1, 3, 4, 4)
    state = torch.get_rng_state()
    aacp.trace(model, x)
    assert torch.equal(torch.get_rng_state(), state)
