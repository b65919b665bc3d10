"""Fast batch norms: which norms are replaced, when the kernels are used, and that all are restored afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from aacp.accelerate import layers, norms
from aacp.accelerate.kernels.loading import load_kernels
from aacp.accelerate.layers import share_with_teachers
from aacp.accelerate.norms import (
    FastBatchNorm2d,
    fast_norms,
    is_supported_input,
    is_supported_norm,
    plain_batch_norms,
)
from aacp.train.fabric import make_fabric
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from train.small_data import network, same, small_images, weights
from written_kernels import WrittenNorms as Written

RECIPE = Recipe(epochs=2, batch_size=16, lr=0.1, precision="bf16-mixed")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Kernels that run anywhere, and a machine that has a GPU as far as norms are concerned."""
    kernels = Written()
    monkeypatch.setattr(norms, "norm_kernels", lambda: kernels)
    monkeypatch.setattr(layers, "_is_on_current_gpu", lambda x: True)
    monkeypatch.setattr(norms, "is_supported_run", lambda model, fabric: True)
    return kernels


@pytest.fixture
def missing() -> Iterator[None]:
    load_kernels.cache_clear()
    yield
    load_kernels.cache_clear()


def activations(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).bfloat16().contiguous(memory_format=torch.channels_last)


def zoo() -> nn.Module:
    class Own(nn.BatchNorm2d):
        pass

    twice = nn.BatchNorm2d(3)
    return nn.Sequential(twice, nn.Sequential(twice, nn.BatchNorm2d(4)), nn.BatchNorm1d(3), Own(3), nn.Conv2d(3, 3, 1))


def test_torchs_own_norms_are_quick_for_a_while_and_only_they(written: Written) -> None:
    model, fabric = zoo(), make_fabric(device="cpu")
    kinds, state = [type(module) for module in model.modules()], list(model.state_dict())
    with fast_norms(model, fabric):
        assert [name for name, module in model.named_modules() if type(module) is FastBatchNorm2d] == ["0", "1.1"]
        assert list(model.state_dict()) == state
    assert [type(module) for module in model.modules()] == kinds
    with pytest.raises(KeyError), fast_norms(model, fabric):
        raise KeyError
    assert [type(module) for module in model.modules()] == kinds


def test_copies_and_pickles_are_torchs_own() -> None:
    model = nn.Sequential(FastBatchNorm2d(3, momentum=0.3))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model[0])):
        norm = twin[0] if isinstance(twin, nn.Sequential) else twin
        assert type(norm) is nn.BatchNorm2d
        assert norm.momentum == 0.3
        assert same(norm.state_dict(), model[0].state_dict())


def test_a_norm_must_remember_in_single_precision() -> None:
    assert is_supported_norm(nn.BatchNorm2d(3))
    assert not is_supported_norm(nn.BatchNorm2d(3).bfloat16())
    assert not is_supported_norm(nn.BatchNorm2d(3, affine=False))
    assert not is_supported_norm(nn.BatchNorm2d(3, track_running_stats=False))
    assert not is_supported_norm(nn.BatchNorm2d(3, momentum=None))
    forgetful = nn.BatchNorm2d(3)
    forgetful.track_running_stats = False
    assert not is_supported_norm(forgetful)


def test_a_batch_needs_several_values_per_channel(written: Written) -> None:
    assert is_supported_input(activations(2, 3, 4, 4), 3)
    assert not is_supported_input(activations(2, 3, 4, 4).float(), 3)
    assert not is_supported_input(activations(1, 3, 1, 1), 3)
    assert not is_supported_input(activations(0, 3, 4, 4), 3)


def test_what_the_kernels_do_not_take_is_torchs_to_the_message(written: Written) -> None:
    quick = FastBatchNorm2d(3)
    plain = copy.deepcopy(quick)
    for given in (activations(2, 3, 4, 4).float(), activations(2, 3, 4, 4).contiguous()):
        assert torch.equal(quick(given), plain(given))
    assert same(quick.state_dict(), plain.state_dict())
    with pytest.raises(ValueError, match="expected 4D input"):
        quick(activations(2, 3, 4, 4)[0])
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        quick(activations(1, 3, 1, 1))
    with pytest.raises(RuntimeError, match="running_mean should contain"):
        quick(activations(2, 4, 4, 4))
    assert not written.forward
    quick(activations(2, 3, 4, 4))
    assert written.forward == 1


@pytest.mark.parametrize(
    ("is_trained", "reaches_x"), [(True, True), (True, False), (False, True)], ids=["all", "parameters", "inputs"]
)
def test_gradients_go_where_they_are_wanted(written: Written, is_trained: bool, reaches_x: bool) -> None:
    found = []
    for norm in (FastBatchNorm2d(3), nn.BatchNorm2d(3)):
        norm.requires_grad_(is_trained)
        x = activations(4, 3, 5, 5).requires_grad_(reaches_x)
        norm(norm(x)).float().pow(3).sum().backward()
        found.append([x.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()])
    assert (written.forward, written.backward) == (2, 2)
    for ours, torchs in zip(*found, strict=True):
        assert (ours is None) == (torchs is None)
        assert ours is None or torch.equal(ours, torchs)


def test_a_gradient_may_be_differentiated(written: Written) -> None:
    found = []
    for norm in (FastBatchNorm2d(3), nn.BatchNorm2d(3)):
        x = activations(4, 3, 5, 5).requires_grad_()
        (slope,) = torch.autograd.grad(norm(x).float().pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.float().square().sum(), [x, norm.weight]))
    assert written.forward == 1
    assert all(torch.equal(ours, torchs) for ours, torchs in zip(*found, strict=True))


def test_an_evaluation_uses_running_statistics_and_has_kernels_if_nothing_is_differentiated(written: Written) -> None:
    fast = FastBatchNorm2d(3, eps=0.1)
    for step in range(3):
        fast(activations(4, 3, 5, 5) * step + step)
    fast.eval()
    plain, x = copy.deepcopy(fast), activations(2, 3, 4, 4)
    buffers = {name: buffer.clone() for name, buffer in fast.named_buffers()}
    with torch.no_grad():
        assert torch.equal(fast(x), plain(x))
        assert written.evaluated == 1
    assert same(dict(fast.named_buffers()), buffers)
    assert torch.equal(fast(x), plain(x))
    assert fast(x).requires_grad
    assert written.evaluated == 1


def test_teachers_get_norms_with_kernels_if_the_student_has_them(written: Written) -> None:
    student, teacher = network(), zoo()
    share_with_teachers(student, [teacher], FastBatchNorm2d, plain_batch_norms)
    assert not any(type(module) is FastBatchNorm2d for module in teacher.modules())
    with fast_norms(student, make_fabric(device="cpu")):
        share_with_teachers(student, [teacher], FastBatchNorm2d, plain_batch_norms)
    assert [name for name, module in teacher.named_modules() if type(module) is FastBatchNorm2d] == ["0", "1.1"]


def test_statistics_changed_under_a_waiting_backward_are_noticed(written: Written) -> None:
    norm, x = FastBatchNorm2d(3), activations(2, 3, 4, 4).requires_grad_()
    waiting = norm.eval()(x)
    norm.train()(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        waiting.sum().backward()


def test_a_run_trains_fast_norms_and_gives_the_network_back_as_it_was(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for is_quick in (False, True):
        monkeypatch.setattr(norms, "is_supported_run", lambda model, fabric, answer=is_quick: answer)
        model = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fit(model, small_images(), RECIPE, device="cpu")
        assert type(model[1]) is nn.BatchNorm2d
        assert bool(written.backward) is is_quick
        found.append(weights(model))
    assert same(*found)


@pytest.mark.usefixtures("missing")
def test_without_kernels_training_warns_once_and_continues_with_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "is_supported_run", lambda model, fabric: True)
    monkeypatch.setattr(
        "aacp.accelerate.kernels.loading.importlib.import_module", lambda name: SimpleNamespace(self_test=lambda: 1 / 0)
    )
    model = network()
    with (
        pytest.warns(
            UserWarning, match="Training runs without aacp's own kernels: ZeroDivisionError: division by zero"
        ) as said,
        fast_norms(model, make_fabric(device="cpu")),
        fast_norms(model, make_fabric(device="cpu")),
    ):
        assert type(model[1]) is nn.BatchNorm2d  # type: ignore[index]
    assert len(said) == 1
