"""Fused Triton kernels for bfloat16 activations with channels last; sums are in single precision.

Every sum has a fixed order (partial sums of a fixed grid, then the sum of those), so results repeat bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from aacp.accelerate.kernels import sums
from aacp.accelerate.kernels.sums import PROGRAMS, TILE, first_of, mean_and_variance, totals

PAIRS = 128  # pairs of pixels that a program of the convolution handles at once
CHANNELS = 16  # channels of the convolution, so that four neighbouring pixels are 64 numbers
NO_TOP = 3.0e38  # upper bound of a ReLU, which has none


@triton.jit(do_not_specialize=["programs"])
def _finish_kernel(
    partial, x, mean, variance, programs, count,
    SHIFTED: tl.constexpr, CHANNELS: tl.constexpr, REPEATS: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """Mean and variance of 16 channels from partial sums, which may hold several sums for each channel."""
    channel = tl.program_id(0) * 16 + tl.arange(0, 16)
    total, squares = totals(partial, programs, channel, CHANNELS, REPEATS, HEIGHT)
    average, spread = mean_and_variance(total, squares, count)
    if SHIFTED:
        average += first_of(x, channel, channel < CHANNELS)
    tl.store(mean + channel, average, mask=channel < CHANNELS)
    tl.store(variance + channel, spread, mask=channel < CHANNELS)


@triton.jit(do_not_specialize=["has_residual", "clips"])
def _activate_kernel(
    x, scale, shift, residual, y, elements, top, has_residual, clips, CHANNELS: tl.constexpr, TILE: tl.constexpr
):
    """scale x + shift + residual, clipped to [0, top]."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < elements
    channel = (at % CHANNELS).to(tl.int32)
    value = tl.load(x + at, mask=inside).to(tl.float32) * tl.load(scale + channel) + tl.load(shift + channel)
    if has_residual:
        value += tl.load(residual + at, mask=inside).to(tl.float32)
    if clips:
        value = tl.minimum(tl.maximum(value, 0.0), top)
    tl.store(y + at, value.to(tl.bfloat16), mask=inside)


@triton.jit
def _taps(weight, DOWN: tl.constexpr, CHANNELS: tl.constexpr):
    """One row of a 3x3 kernel as a matrix from four neighbouring pixels to the two in the middle."""
    k, n = tl.arange(0, 4 * CHANNELS)[:, None], tl.arange(0, 2 * CHANNELS)[None, :]
    right = k // CHANNELS - n // CHANNELS
    at = weight + ((n % CHANNELS) * 9 + DOWN * 3 + right) * CHANNELS + k % CHANNELS
    return tl.load(at, mask=(right >= 0) & (right < 3), other=0.0)


@triton.jit(do_not_specialize=["pairs", "height", "width", "has_residual", "clips"])
def _convolve_kernel(
    x, weight, y, scale, shift, residual, partial, pairs, height, width, top, has_residual, clips,
    SUMS: tl.constexpr, CHANNELS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """A 3x3 convolution of two pixels at a time, with either its sums or the operators after the batch norm."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    k, n = tl.arange(0, 4 * CHANNELS), tl.arange(0, 2 * CHANNELS)
    taps_0, taps_1, taps_2 = _taps(weight, 0, CHANNELS), _taps(weight, 1, CHANNELS), _taps(weight, 2, CHANNELS)
    total = tl.zeros((2 * CHANNELS,), tl.float32)
    squares = tl.zeros((2 * CHANNELS,), tl.float32)
    for tile in range(program, tl.cdiv(pairs, PAIRS), programs):
        pair = tile * PAIRS + tl.arange(0, PAIRS)
        inside = pair < pairs
        row, left = pair // (width // 2), pair % (width // 2) * 2 - 1
        i = row % height
        column = left[:, None] + (k // CHANNELS)[None, :]
        seen = inside[:, None] & (column >= 0) & (column < width)
        at = (row.to(tl.int64) * width + left)[:, None] * CHANNELS + k[None, :]
        above, below = (i > 0)[:, None], (i < height - 1)[:, None]
        value = tl.dot(tl.load(x + at - width * CHANNELS, mask=seen & above, other=0.0), taps_0)
        value = tl.dot(tl.load(x + at, mask=seen, other=0.0), taps_1, value)
        value = tl.dot(tl.load(x + at + width * CHANNELS, mask=seen & below, other=0.0), taps_2, value)
        to = pair.to(tl.int64)[:, None] * (2 * CHANNELS) + n[None, :]
        if SUMS:
            total += tl.sum(value, 0)
            squares += tl.sum(value * value, 0)
        else:
            value = value * tl.load(scale + n % CHANNELS)[None, :] + tl.load(shift + n % CHANNELS)[None, :]
            if has_residual:
                value += tl.load(residual + to, mask=inside[:, None], other=0.0).to(tl.float32)
            if clips:
                value = tl.minimum(tl.maximum(value, 0.0), top)
        tl.store(y + to, value.to(tl.bfloat16), mask=inside[:, None])
    if SUMS:
        tl.store(partial + program * 4 * CHANNELS + n, total)
        tl.store(partial + program * 4 * CHANNELS + 2 * CHANNELS + n, squares)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and population variance of each channel."""
    channels = x.shape[1]
    return _finished(sums.moments(x), x.numel() // channels, channels, shift=x)


def activate(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    residual: torch.Tensor | None,
    top: float | None,
) -> torch.Tensor:
    """scale x + shift + residual, clipped to [0, top] if `top` is given."""
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), TILE),)
    given = x if residual is None else residual
    clips = (min(top or 0.0, NO_TOP), int(residual is not None), int(top is not None))
    _activate_kernel[grid](x, scale, shift, given, y, x.numel(), *clips, x.shape[1], TILE)
    return y


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    residual: torch.Tensor | None,
    top: float | None,
) -> torch.Tensor:
    """A 3x3 convolution of 16 channels, its batch norm, residual and activation."""
    y = torch.empty_like(x)
    pairs = x.numel() // (2 * CHANNELS)
    given = x if residual is None else residual
    clips = (min(top or 0.0, NO_TOP), int(residual is not None), int(top is not None))
    _convolve_kernel[(triton.cdiv(pairs, PAIRS),)](
        x, weight, y, scale, shift, given, scale, pairs, *x.shape[2:], *clips, False, CHANNELS, PAIRS, num_stages=1
    )
    return y


def convolve_with_moments(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A 3x3 convolution of 16 channels, with mean and population variance of the result."""
    y = torch.empty_like(x)
    pairs = x.numel() // (2 * CHANNELS)
    programs = min(PROGRAMS, triton.cdiv(pairs, PAIRS))
    partial = torch.empty(programs, 2, 2, CHANNELS, device=x.device)
    _convolve_kernel[(programs,)](
        x, weight, y, partial, partial, x, partial, pairs, *x.shape[2:], 0.0, 0, 0, True, CHANNELS, PAIRS, num_stages=1
    )
    return y, *_finished(partial, 2 * pairs, CHANNELS)


def self_test() -> None:
    """Run every kernel once on tiny tensors, so that a failure shows here and not later."""
    x = torch.zeros(1, CHANNELS, 2, 2, device="cuda", dtype=torch.bfloat16).contiguous(
        memory_format=torch.channels_last
    )
    weight = torch.zeros(CHANNELS, CHANNELS, 3, 3, device="cuda", dtype=x.dtype)
    y, mean, variance = convolve_with_moments(x, weight)
    moments(activate(convolve(x, weight, mean, variance, y, None), mean, variance, None, 6.0))
    torch.cuda.synchronize()


def _finished(
    partial: torch.Tensor, count: int, channels: int, shift: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance from partial sums: of values, or of their differences from the first elements of `shift`."""
    mean, variance = torch.empty(2, channels, device=partial.device).unbind()
    repeats = partial[0].numel() // (2 * channels)
    grid = (triton.cdiv(channels, 16),)
    _finish_kernel[grid](
        partial,
        partial if shift is None else shift,
        mean,
        variance,
        len(partial),
        float(count),
        shift is not None,
        channels,
        repeats,
        triton.next_power_of_2(len(partial)),
        num_warps=16,
    )
    return mean, variance
