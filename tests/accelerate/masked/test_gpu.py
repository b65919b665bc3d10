"""Our kernels against their plain torch forms, and masked execution on a GPU against exact scores."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import aacp
from aacp.accelerate.kernels import dispatch as kernels
from aacp.accelerate.kernels.dispatch import Convolution, Pending

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on the GPU machine"),
]


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)


def close(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Equal but for the last rounding to bfloat16, which keeps 8 bits."""
    torch.testing.assert_close(found.float(), exact.float(), rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize(("channels", "size", "count"), [(3, 32, 5), (16, 32, 9), (16, 10, 7), (8, 2, 300)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("top", [None, 6.0, math.inf])
def test_a_narrow_convolution_equals_torch(channels: int, size: int, count: int, residual: bool, top) -> None:
    x, weight = images(count, channels, size, size), images(16, channels, 3, 3) * 0.2
    ones = (1, 1)
    convolution = Convolution(x, weight, ones, ones, ones, 1)
    assert convolution.narrow is not None
    exact = F.conv2d(x.double(), weight.double(), padding=1)

    value, mean, variance = kernels.moments(convolution)
    close(value, exact)
    torch.testing.assert_close(mean.double(), exact.mean((0, 2, 3)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(variance.double(), exact.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-4)

    scale, shift = torch.rand(16, device="cuda"), torch.randn(16, device="cuda")
    added = images(count, 16, size, size) if residual else None
    pending = Pending(convolution, scale, shift, added, top)
    close(pending.computed(), Pending(exact, scale.double(), shift.double(), added, top).computed())


@pytest.mark.parametrize(("channels", "size", "count"), [(24, 7, 50), (64, 8, 100), (96, 14, 33), (1280, 7, 3)])
def test_statistics_and_activations_of_any_width_equal_torch(channels: int, size: int, count: int) -> None:
    x, residual = images(count, channels, size, size) + 0.5, images(count, channels, size, size)
    _, mean, variance = kernels.moments(x)
    torch.testing.assert_close(mean.double(), x.double().mean((0, 2, 3)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(variance.double(), x.double().var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-5)
    scale, shift = torch.rand(channels, device="cuda"), torch.randn(channels, device="cuda")
    exact = Pending(x.double(), scale.double(), shift.double(), residual, 6.0).computed()
    close(Pending(x, scale, shift, residual, 6.0).computed(), exact)


# Torchvision's MobileNetV2 shrinks these images to one pixel: too few rows to determine the repaired weights.
@pytest.mark.parametrize(
    ("name", "reconstruction"),
    [("resnet20", None), ("resnet20", "repair"), ("torchvision:mobilenet_v2", None), ("mobilenet_v2", "repair")],
)
def test_masked_scores_on_the_gpu_are_those_of_the_cut_network(name: str, reconstruction) -> None:
    model = aacp.build_model(name).eval()
    example = aacp.example_input(model, (1, 3, 32, 32))
    graph = aacp.trace(model, example)
    images = torch.randn(256, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def mean_output(network, batches) -> float:
        return float(torch.cat([network(x) for x in batches.inputs()]).double().square().mean())

    def estimate(execution: str) -> aacp.PSAE:
        inheritance = aacp.Inheritance(model, graph, images[:128], reconstruction=reconstruction, device="cuda")
        return aacp.PSAE(inheritance, images[128:], score=mean_output, execution=execution)

    masked, sliced = estimate("masked"), estimate("sliced")
    for share in (2, 3):
        structure = [max(1, group.width // share) for group in graph.free]
        assert masked(structure) == pytest.approx(sliced(structure), rel=0.05)
        assert masked(structure) == estimate("masked")(structure)  # again from nothing, to the last bit


def test_weights_repaired_on_the_gpu_are_those_of_the_cpu() -> None:
    """What they compute differs by a hundredth at most; the images say little about some of the weights themselves."""
    torch.manual_seed(0)
    model = aacp.build_model("resnet20").eval()
    graph = aacp.trace(model, aacp.example_input(model))
    calibration = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    units = graph.kept_units([max(1, group.width // 2) for group in graph.free])
    found, exact = (
        aacp.Inheritance(model, graph, calibration, device=device).parallel_repair for device in ("cuda", "cpu")
    )
    there = found.weights(units)
    here = exact.weights(units)
    assert there.keys() == here.keys()
    for gram in exact.grams:
        name = gram.product.weight
        assert there[name].is_cuda
        weight = gram.product.matrix(here[name])
        difference = gram.product.matrix(there[name].cpu()) - weight
        energy, error = (float(((part @ gram.covariance) * part).sum()) for part in (weight, difference))
        assert error <= 1e-4 * energy, name
