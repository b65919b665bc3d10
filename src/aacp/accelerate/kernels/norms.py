"""Batch norm for training in Triton: bfloat16 activations with channels last, all else in single precision.

Three kernels for each direction: partial sums, results per channel, results per element. The convolution before may
have computed the partial sums. In evaluation mode, where the statistics are given, only the last kernel is needed.
Nothing waits for the device, so that a step can be captured in a CUDA graph. All sums have a fixed order, so that
results repeat bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from aacp.accelerate.kernels import sums
from aacp.accelerate.kernels.sums import channels_at, elements_at, first_of, mean_and_variance, store_sums, totals

TILE = 2048  # elements per program: sixteen for each thread of four warps
HEIGHT = 256  # partial sums that a program reads at once, for each of 16 channels


@triton.jit(do_not_specialize=["programs", "vectors"])
def _statistics_kernel(
    partial, x, mean, rstd, running_mean, running_var, batches, programs, count, momentum, eps, vectors,
    VECTOR: tl.constexpr, HEIGHT: tl.constexpr, REPEATS: tl.constexpr, FROM_MEAN: tl.constexpr,
):  # fmt: skip
    """Mean and inverse standard deviation of 16 channels; updates their running statistics.

    The partial sums are of differences from the running mean or from the first element of each channel.
    """
    channels = vectors * VECTOR
    channel = tl.program_id(0) * 16 + tl.arange(0, 16)
    known = channel < channels
    # Read before the sums, which synchronise all threads: no thread may read what another one has already replaced.
    old_mean = tl.load(running_mean + channel, mask=known, other=0.0)
    old_var = tl.load(running_var + channel, mask=known, other=0.0)
    seen = tl.load(batches)
    shift = old_mean if FROM_MEAN else first_of(x, channel, known)
    total, squares = totals(partial, programs, channel, channels, REPEATS, HEIGHT)
    average, variance = mean_and_variance(total, squares, count)
    average += shift
    tl.store(mean + channel, average, mask=known)
    tl.store(rstd + channel, 1.0 / tl.sqrt(variance + eps), mask=known)
    unbiased = variance * (count / (count - 1.0))
    tl.store(running_mean + channel, old_mean + momentum * (average - old_mean), mask=known)
    tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), mask=known)
    if tl.program_id(0) == 0:
        tl.store(batches, seen + 1)


@triton.jit(do_not_specialize=["rows", "vectors"])
def _normalise_kernel(
    x, y, weight, bias, mean, spread, eps, rows, vectors,
    VECTOR: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr, IS_VARIANCE: tl.constexpr,
):  # fmt: skip
    """(x - mean) / deviation * weight + bias; the spread is the variance or 1 / deviation."""
    channels = vectors * VECTOR
    channel, known = channels_at(channels, WIDTH)
    at, inside = elements_at(tl.program_id(0), rows, channel, known, channels, HEIGHT)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    middle = tl.load(mean + channel, mask=known, other=0.0)
    scale = tl.load(spread + channel, mask=known, other=1.0)
    if IS_VARIANCE:
        scale = 1.0 / tl.sqrt(scale + eps)
    scale *= tl.load(weight + channel, mask=known, other=0.0)
    shift = tl.load(bias + channel, mask=known, other=0.0)
    value = (value - middle[None, :]) * scale[None, :] + shift[None, :]
    tl.store(y + at, value.to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["rows", "vectors"])
def _products_kernel(
    dy, x, mean, partial, rows, vectors, VECTOR: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr
):
    """For each channel the sums of dy and of dy * (x - mean)."""
    channels = vectors * VECTOR
    channel, known = channels_at(channels, WIDTH)
    middle = tl.load(mean + channel, mask=known, other=0.0)
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    products = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, HEIGHT), tl.num_programs(0)):
        at, inside = elements_at(tile, rows, channel, known, channels, HEIGHT)
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        total += gradient
        products += gradient * (value - middle[None, :])  # masked elements have gradient 0
    store_sums(partial, total, products, channel, known, channels)


@triton.jit(do_not_specialize=["programs", "vectors"])
def _parameters_kernel(partial, rstd, dweight, dbias, programs, vectors, VECTOR: tl.constexpr, HEIGHT: tl.constexpr):
    """The gradients of weight and bias for 16 channels."""
    channels = vectors * VECTOR
    channel = tl.program_id(0) * 16 + tl.arange(0, 16)
    known = channel < channels
    deviation = tl.load(rstd + channel, mask=known, other=0.0)
    total, products = totals(partial, programs, channel, channels, 1, HEIGHT)
    tl.store(dbias + channel, total, mask=known)
    tl.store(dweight + channel, products * deviation, mask=known)


@triton.jit(do_not_specialize=["rows", "vectors"])
def _inputs_kernel(
    dy, x, dx, weight, mean, rstd, dweight, dbias, share, rows, vectors,
    VECTOR: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """The gradient of the inputs, including their effect on mean and deviation."""
    channels = vectors * VECTOR
    channel, known = channels_at(channels, WIDTH)
    at, inside = elements_at(tl.program_id(0), rows, channel, known, channels, HEIGHT)
    gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    middle = tl.load(mean + channel, mask=known, other=0.0)
    deviation = tl.load(rstd + channel, mask=known, other=0.0)
    scale = deviation * tl.load(weight + channel, mask=known, other=0.0)
    moved = tl.load(dbias + channel, mask=known, other=0.0) * share
    stretched = tl.load(dweight + channel, mask=known, other=0.0) * share * deviation
    value = (gradient - moved[None, :] - (value - middle[None, :]) * stretched[None, :]) * scale[None, :]
    tl.store(dx + at, value.to(tl.bfloat16), mask=inside)


def normalise(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    batches: torch.Tensor,
    momentum: float,
    eps: float,
    partial: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalise activations and update the running statistics in place.

    Args:
        x: activations in bfloat16, channels last.
        weight, bias: the parameters of the batch norm.
        running_mean, running_var: running statistics, updated with `momentum`.
        batches: the number of batches seen, incremented.
        momentum: the share of the new batch in the running statistics.
        eps: added to the variance.
        partial: what `convolve_with_moments` returned with the activations for this running mean; None computes sums.

    Returns:
        The normalised activations, and mean and inverse standard deviation per channel.
    """
    y, mean, rstd = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    is_given = partial is not None
    partial = partial if is_given else sums.moments(x)
    repeats = partial[0].numel() // (2 * x.shape[1])
    statistics = (running_mean, running_var, batches)
    known, grid = sums.sizes(x, TILE)
    rows, vectors, vector = known[:3]
    _statistics_kernel[(triton.cdiv(x.shape[1], 16),)](
        partial, x, mean, rstd, *statistics, len(partial), float(rows), momentum, eps, vectors, vector, HEIGHT,
        repeats, is_given, num_warps=8, num_stages=1,
    )  # fmt: skip
    _normalise_kernel[grid](x, y, weight, bias, mean, rstd, eps, *known, False, num_warps=4)
    return y, mean, rstd


def normalise_by(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, eps: float
) -> torch.Tensor:
    """Normalise activations by a given mean and variance, as a batch norm does in evaluation mode.

    Args:
        x: activations in bfloat16, channels last.
        weight, bias: the parameters of the batch norm.
        mean, variance: the statistics.
        eps: added to the variance.
    """
    y = torch.empty_like(x)
    known, grid = sums.sizes(x, TILE)
    _normalise_kernel[grid](x, y, weight, bias, mean, variance, eps, *known, True, num_warps=4)
    return y


def differentiate(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, reaches_x: bool
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """The gradients of inputs (None unless `reaches_x`), weight and bias.

    Args:
        dy: the gradient of the outputs.
        x: the inputs.
        weight: the weight of the batch norm.
        mean, rstd: as `normalise` returned them.
        reaches_x: whether the gradient of the inputs is needed.
    """
    dy = dy.to(x.dtype).contiguous(memory_format=torch.channels_last)
    known, (tiles, columns) = sums.sizes(x)
    rows, vectors, vector = known[:3]
    partial = sums.room_for_sums(x, tiles)
    _products_kernel[(len(partial), columns)](dy, x, mean, partial, *known, num_warps=8, num_stages=1)
    dweight, dbias = torch.empty_like(weight), torch.empty_like(weight)
    _parameters_kernel[(triton.cdiv(x.shape[1], 16),)](
        partial, rstd, dweight, dbias, len(partial), vectors, vector, HEIGHT, num_warps=8, num_stages=1
    )
    if not reaches_x:
        return None, dweight, dbias
    dx = torch.empty_like(x)
    known, grid = sums.sizes(x, TILE)
    _inputs_kernel[grid](dy, x, dx, weight, mean, rstd, dweight, dbias, 1 / rows, *known, num_warps=4)
    return dx, dweight, dbias


def self_test() -> None:
    """Run every kernel once on tiny tensors, so that a failure shows here and not in training."""
    x = torch.zeros(2, 8, 2, 2, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    parameters = [torch.zeros(8, device="cuda") for _ in range(4)]
    batches = torch.zeros((), device="cuda", dtype=torch.int64)
    y, mean, rstd = normalise(x, *parameters, batches, 0.1, 1e-5)
    normalise(x, *parameters, batches, 0.1, 1e-5, torch.zeros(1, 2, 2, 8, device="cuda"))
    differentiate(y, x, parameters[0], mean, rstd, True)
    normalise_by(x, *parameters, 1e-5)
    torch.cuda.synchronize()
