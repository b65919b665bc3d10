"""Our 3x3 convolutions against torch's in double precision, through the module that training uses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.accelerate.convolutions import FastConv2d, convolution_kernels, is_supported_input

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine"),
]
# Batch, channels of inputs and outputs, height, width.
SHAPES = [
    (128, 16, 16, 32, 32),
    (128, 16, 8, 32, 32),
    (128, 8, 16, 32, 32),
    (128, 32, 32, 16, 16),
    (128, 24, 32, 16, 16),
    (128, 32, 16, 16, 16),
    (128, 16, 32, 16, 16),
    (128, 64, 64, 8, 8),
    (128, 48, 64, 8, 8),
    (128, 64, 40, 8, 8),
    (7, 8, 8, 31, 5),
    (3, 16, 8, 5, 7),
    (2, 8, 64, 3, 3),
    (2, 64, 8, 9, 1),
    (1, 40, 56, 1, 13),
    (1, 16, 64, 1, 1),
]
Shape = tuple[int, int, int, int, int]


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    """Random numbers in bf16 with channels last."""
    values = torch.randn(sizes, generator=torch.Generator().manual_seed(seed))
    return values.bfloat16().to("cuda").contiguous(memory_format=torch.channels_last)


def tensors_of(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, weight and the gradient of the outputs."""
    n, i, o, height, width = shape
    return drawn(n, i, height, width), drawn(o, i, 3, 3, seed=1), drawn(n, o, height, width, seed=2)


def layer_of(weight: Tensor, kind: type[nn.Conv2d] = FastConv2d) -> nn.Conv2d:
    layer = kind(weight.shape[1], weight.shape[0], 3, padding=1, bias=False)
    layer.weight = nn.Parameter(weight)
    return layer


def run(layer: nn.Conv2d, x: Tensor, dy: Tensor) -> dict[str, Tensor]:
    """The outputs of a layer and all gradients."""
    x = x.detach().requires_grad_()
    y = layer(x)
    dx, dweight = torch.autograd.grad(y, [x, layer.weight], dy.to(y.dtype))
    return {"y": y.detach(), "dx": dx, "dweight": dweight}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_convolution_is_torchs(shape: Shape) -> None:
    x, weight, dy = tensors_of(shape)
    assert is_supported_input(x, weight)
    assert convolution_kernels() is not None
    found = run(layer_of(weight), x, dy)
    exact = run(layer_of(weight.double(), nn.Conv2d), x.double(), dy.double())
    n, i, o, height, width = shape
    for name, terms in (("y", 9 * i), ("dx", 9 * o), ("dweight", n * height * width)):
        assert found[name].dtype == torch.bfloat16
        assert found[name].is_contiguous(memory_format=torch.channels_last)
        # The last rounding to bf16, and that of sums in single precision, whose terms may cancel.
        torch.testing.assert_close(found[name].double(), exact[name], rtol=2**-8, atol=1e-4 * terms**0.5)


@pytest.mark.parametrize("shape", SHAPES[::3], ids=str)
def test_a_convolution_repeats_bit_for_bit(shape: Shape) -> None:
    x, weight, dy = tensors_of(shape)
    one, other = (run(layer_of(weight), x, dy) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_for_a_batch_norm_are_those_of_the_outputs(shape: Shape) -> None:
    x, weight, _ = tensors_of(shape)
    shift = torch.linspace(-20, 30, shape[2], device="cuda")
    kernels = convolution_kernels()
    assert kernels is not None
    y, partial = kernels.convolve_with_moments(x, weight, shift)
    assert torch.equal(y, kernels.convolve(x, weight))
    assert torch.equal(partial, kernels.convolve_with_moments(x, weight, shift)[1])
    assert partial.dtype == torch.float32
    difference = y.double() - shift.double()[:, None, None]
    found = partial.double().sum((0, 2))
    for ours, terms in zip(found, (difference, difference.square()), strict=True):
        # Terms and sums of a tile are rounded to single precision: not to bf16, which would be 2**-9.
        error = (ours - terms.sum((0, 2, 3))).abs()
        assert (error <= 2**-19 * terms.abs().sum((0, 2, 3))).all()


def test_inputs_that_begin_inside_of_a_tensor_are_taken() -> None:
    x, weight, dy = tensors_of((6, 16, 8, 5, 5))
    found, expected = run(layer_of(weight), x[1:4], dy[1:4]), run(layer_of(weight), x[1:4].clone(), dy[1:4].clone())
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_gradients_of_any_layout_are_taken_and_only_wanted_ones_are_given() -> None:
    x, weight, dy = tensors_of((5, 16, 8, 4, 4))
    expected = run(layer_of(weight), x, dy)
    found = run(layer_of(weight), x, dy.contiguous())
    assert all(torch.equal(found[name], expected[name]) for name in found)
    spread = dy[:, :, :1, :1].expand(5, 8, 4, 4)
    found, expected_of_spread = run(layer_of(weight), x, spread), run(layer_of(weight), x, spread.clone())
    assert all(torch.equal(found[name], expected_of_spread[name]) for name in found)
    frozen = layer_of(weight).requires_grad_(False)
    reached = x.detach().requires_grad_()
    frozen(reached).backward(dy)
    assert reached.grad is not None
    assert torch.equal(reached.grad, expected["dx"])
    assert frozen.weight.grad is None
    first = layer_of(weight)
    first(x).backward(dy)
    assert first.weight.grad is not None
    assert torch.equal(first.weight.grad, expected["dweight"])


def test_gradients_can_be_differentiated() -> None:
    x, weight, _ = tensors_of((4, 8, 16, 5, 5))
    found = []
    for kind in (FastConv2d, nn.Conv2d):
        layer, given = layer_of(weight, kind), x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(layer(given).float().pow(3).sum(), given, create_graph=True)
        found.append(torch.autograd.grad(slope.float().square().sum(), [layer.weight, given]))
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=0.05, atol=0.05 * float(torchs.abs().max()))


def test_autocast_converts_weights_in_single_precision() -> None:
    x, weight, dy = tensors_of((4, 8, 16, 6, 6))
    expected = run(layer_of(weight), x, dy)
    with torch.autocast("cuda", torch.bfloat16):
        found = run(layer_of(weight.float()), x, dy)
    assert found["dweight"].dtype == torch.float32
    assert all(torch.equal(found[name], expected[name].to(found[name].dtype)) for name in found)


def test_other_inputs_are_left_to_torch() -> None:
    x, weight, _ = tensors_of((5, 16, 8, 4, 4))
    for given in (x.float(), x.half(), x.contiguous()):
        own = weight.to(given.dtype)
        assert torch.equal(layer_of(own)(given), F.conv2d(given, own, padding=1))
    with pytest.raises(RuntimeError, match="should be the same"):
        layer_of(weight.float())(x)
