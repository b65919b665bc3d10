"""Our batch norm for training against torch's in double precision, through the module that training uses."""

from __future__ import annotations

from collections.abc import Iterable
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.accelerate.convolutions import FastConv2d
from aacp.accelerate.norms import FastBatchNorm2d

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine"),
]
SHAPES = [
    (128, 8, 32, 32),
    (128, 16, 32, 32),
    (128, 24, 16, 16),
    (128, 48, 8, 8),
    (128, 512, 4, 4),
    (7, 3, 31, 5),
    (33, 100, 7, 7),
    (9, 130, 3, 3),
    (5, 1, 6, 6),
    (2, 2048, 1, 1),
]
CONVOLVED = [*SHAPES[:4], (128, 64, 8, 8), (7, 8, 31, 5), (3, 40, 5, 7), (600, 16, 32, 32)]  # for our convolutions too


def activations(shape: tuple[int, ...], mean: float, device: str, seed: int = 0) -> Tensor:
    """Channels of different means and deviations, in bf16 with channels last."""
    generator = torch.Generator().manual_seed(seed)
    deviation = 0.5 + torch.rand(1, shape[1], 1, 1, generator=generator)
    middle = mean + torch.randn(1, shape[1], 1, 1, generator=generator)
    x = torch.randn(shape, generator=generator) * deviation + middle
    return x.bfloat16().to(device).contiguous(memory_format=torch.channels_last)


def norm_of(kind: type[nn.BatchNorm2d], channels: int, device: str) -> nn.BatchNorm2d:
    """A batch norm that has learnt something and seen something."""
    generator, norm = torch.Generator().manual_seed(1), kind(channels, eps=1e-3, momentum=0.3)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.copy_(0.2 + torch.rand(channels, generator=generator))
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.fill_(2**33)
    return norm.to(device)


def convolution_before(norm: nn.BatchNorm2d, x: Tensor) -> FastConv2d:
    """A convolution that gives what it gets, and knows the norm, which has forgotten it."""
    layer = FastConv2d(norm.num_features, norm.num_features, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight)
    layer = layer.to(x.device, torch.bfloat16).to(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    assert torch.equal(layer(x), x)
    norm(layer(x))
    norm.load_state_dict(before)
    return layer


def run(norm: nn.BatchNorm2d, x: Tensor, dy: Tensor, before: nn.Module | None = None) -> dict[str, Tensor]:
    """The outputs of a norm, its running statistics afterwards, and all gradients."""
    x = x.detach().requires_grad_()
    y = norm(x if before is None else before(x))
    gradients = torch.autograd.grad(y, [x, norm.weight, norm.bias], dy.to(y.dtype))
    named = dict(zip(("dx", "dweight", "dbias"), gradients, strict=True))
    return {"y": y.detach(), **named, **{name: tensor.clone() for name, tensor in norm.named_buffers()}}


def compare(
    shape: tuple[int, ...], device: str, mean: float = 0.0, rounding: float = 2**-8, has_given_sums: bool = False
) -> None:
    """Ours within the last rounding to bf16 of what is exact, and in single precision well within a thousandth."""
    x, dy = activations(shape, mean, device), activations(shape, 0.3, device, seed=2)
    norm = norm_of(FastBatchNorm2d, shape[1], device)
    if has_given_sums:
        before = convolution_before(norm, x)
        with mock.patch("aacp.accelerate.kernels.sums.moments", side_effect=AssertionError):
            found = run(norm, x, dy, before)
    else:
        found = run(norm, x, dy)
    exact = run(norm_of(nn.BatchNorm2d, shape[1], device).double(), x.double(), dy.double())
    assert found["y"].grad_fn is None
    assert found["y"].dtype == found["dx"].dtype == torch.bfloat16
    assert found["y"].stride() == found["dx"].stride() == x.stride()
    assert int(found["num_batches_tracked"]) == int(exact["num_batches_tracked"]) == 2**33 + 1
    wide, rows = x.double(), x.numel() // shape[1]
    # Sums of numbers that may cancel; and a mean that is off by its last digit shifts all that the gradients multiply.
    last_digit = torch.finfo(torch.float32).eps * wide.mean((0, 2, 3)).abs()
    shifted = last_digit * exact["dbias"].abs() * (wide.var((0, 2, 3), correction=0) + 1e-3).rsqrt()
    sums = 1e-4 * rows**0.5 + float(shifted.max())
    close(found, exact, ("y", "dx"), rounding, rounding)
    close(found, exact, ("running_mean", "running_var"), 1e-4, 1e-4)
    close(found, exact, ("dweight", "dbias"), 1e-4, sums)


def close(found: dict[str, Tensor], exact: dict[str, Tensor], names: Iterable[str], rtol: float, atol: float) -> None:
    ours, others = ({name: tensors[name].double() for name in names} for tensors in (found, exact))
    torch.testing.assert_close(ours, others, rtol=rtol, atol=atol)


def compare_repeated(shape: tuple[int, ...], device: str) -> None:
    """The same bits a second time."""
    x, dy = activations(shape, 0.0, device), activations(shape, 0.3, device, seed=2)
    one, other = (run(norm_of(FastBatchNorm2d, shape[1], device), x, dy) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def compare_gradients_of_any_layout(device: str) -> None:
    """Gradients in another memory order, expanded from a few numbers, or missing for some inputs."""
    x, dy = activations((5, 6, 4, 4), 0.0, device), activations((5, 6, 4, 4), 0.3, device, seed=2)
    expected = run(norm_of(FastBatchNorm2d, 6, device), x, dy)
    for given in (dy.contiguous(), dy.float(), dy[:, :, :1, :1].expand(5, 6, 4, 4)):
        found = run(norm_of(FastBatchNorm2d, 6, device), x, given)
        same = given.shape == dy.shape and torch.equal(given.to(dy.dtype), dy)
        exact = expected if same else run(norm_of(FastBatchNorm2d, 6, device), x, given.clone())
        assert all(torch.equal(found[name], exact[name]) for name in found)
    frozen = norm_of(FastBatchNorm2d, 6, device).requires_grad_(False)
    x.requires_grad_()
    frozen(x).backward(dy)
    assert x.grad is not None
    assert torch.equal(x.grad, expected["dx"])
    assert frozen.weight.grad is None
    first = norm_of(FastBatchNorm2d, 6, device)
    first(x.detach()).backward(dy)
    assert first.weight.grad is not None
    assert torch.equal(first.weight.grad, expected["dweight"])


def compare_second_derivatives(device: str) -> None:
    """The gradient of a gradient, as of a penalty on it."""
    x, found = activations((4, 3, 5, 5), 0.0, device), []
    for kind in (FastBatchNorm2d, nn.BatchNorm2d):
        norm, given = norm_of(kind, 3, device), x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(norm(given).float().pow(3).sum(), given, create_graph=True)
        found.append(torch.autograd.grad(slope.float().square().sum(), [norm.weight, given]))
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=0.05, atol=0.05 * float(torchs.abs().max()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mean", [0.0, 10.0])
def test_a_batch_norm_is_torchs(shape: tuple[int, ...], mean: float) -> None:
    compare(shape, "cuda", mean)


@pytest.mark.parametrize("shape", CONVOLVED, ids=str)
@pytest.mark.parametrize("mean", [0.0, 10.0])
def test_a_batch_norm_with_the_sums_of_a_convolution_is_torchs(shape: tuple[int, ...], mean: float) -> None:
    compare(shape, "cuda", mean, has_given_sums=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_batch_norm_in_evaluation_mode_is_torchs(shape: tuple[int, ...]) -> None:
    x, norm = activations(shape, 3.0, "cuda"), norm_of(FastBatchNorm2d, shape[1], "cuda").eval()
    exact = norm_of(nn.BatchNorm2d, shape[1], "cuda").double().eval()(x.double())
    with torch.no_grad(), mock.patch.object(nn.BatchNorm2d, "forward", side_effect=AssertionError):
        found = norm(x)
    assert found.dtype == torch.bfloat16
    assert found.stride() == x.stride()
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
def test_a_batch_norm_repeats_bit_for_bit(shape: tuple[int, ...]) -> None:
    compare_repeated(shape, "cuda")


def test_gradients_of_any_layout_are_taken_and_only_wanted_ones_are_given() -> None:
    compare_gradients_of_any_layout("cuda")


def test_gradients_can_be_differentiated() -> None:
    compare_second_derivatives("cuda")


def test_other_inputs_are_left_to_torch() -> None:
    norm = norm_of(FastBatchNorm2d, 6, "cuda")
    x = activations((5, 6, 4, 4), 0.0, "cuda")
    for given in (x.float(), x.contiguous(), x.half()):
        expected = F.batch_norm(given, None, None, norm.weight, norm.bias, True, eps=norm.eps)
        torch.testing.assert_close(norm(given), expected)
