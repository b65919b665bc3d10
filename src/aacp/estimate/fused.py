"""Fused kernels in Triton, for bfloat16 activations with channels last; sums are taken in single precision.

Every sum is taken in a fixed order (partial sums of a fixed grid, then the sum of those): results repeat bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8  # partial sums: enough to fill a large GPU, few enough to add up quickly
TILE = 4096  # elements that a program handles at once
PAIRS = 128  # pairs of pixels of a convolution that a program handles at once
CHANNELS = 16  # what the convolution is made for: with four pixels side by side, 64 numbers a row
NO_TOP = 3.0e38


@triton.jit
def _moments_kernel(x, partial, rows, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr):
    """Sum and sum of squares of each channel, over every so many-th tile."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    squares = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for tile in range(program, tl.cdiv(rows, HEIGHT), programs):
        row = tile.to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
        inside = (row < rows)[:, None] & (columns < CHANNELS)[None, :]
        value = tl.load(x + row[:, None] * CHANNELS + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    at = partial + program * 2 * CHANNELS + columns
    tl.store(at, tl.sum(total, 0), mask=columns < CHANNELS)
    tl.store(at + CHANNELS, tl.sum(squares, 0), mask=columns < CHANNELS)


@triton.jit
def _finish_kernel(
    partial, mean, variance, programs, count, CHANNELS: tl.constexpr, REPEATS: tl.constexpr, HEIGHT: tl.constexpr
):
    """Mean and variance of 16 channels from partial sums, in which they may be repeated."""
    channel = tl.program_id(0) * 16 + tl.arange(0, 16)
    total = tl.zeros((HEIGHT, 16), tl.float32)
    squares = tl.zeros((HEIGHT, 16), tl.float32)
    for first in range(0, programs, HEIGHT):
        row = first + tl.arange(0, HEIGHT)
        inside = (row < programs)[:, None] & (channel < CHANNELS)[None, :]
        for repeat in tl.static_range(REPEATS):
            at = partial + (row * 2 * REPEATS + repeat)[:, None] * CHANNELS + channel[None, :]
            total += tl.load(at, mask=inside, other=0.0)
            squares += tl.load(at + REPEATS * CHANNELS, mask=inside, other=0.0)
    average = tl.sum(total, 0) / count
    tl.store(mean + channel, average, mask=channel < CHANNELS)
    spread = tl.maximum(tl.sum(squares, 0) / count - average * average, 0.0)
    tl.store(variance + channel, spread, mask=channel < CHANNELS)


@triton.jit
def _activate_kernel(
    x, scale, shift, residual, y, elements, top, has_residual, clips, CHANNELS: tl.constexpr, TILE: tl.constexpr
):
    """scale x + shift, plus a residual, cut off below 0 and above top."""
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
    """One row of a 3x3 kernel as a matrix from four pixels side by side to the two in their middle."""
    k, n = tl.arange(0, 4 * CHANNELS)[:, None], tl.arange(0, 2 * CHANNELS)[None, :]
    right = k // CHANNELS - n // CHANNELS
    at = weight + ((n % CHANNELS) * 9 + DOWN * 3 + right) * CHANNELS + k % CHANNELS
    return tl.load(at, mask=(right >= 0) & (right < 3), other=0.0)


@triton.jit
def _convolve_kernel(
    x, weight, y, scale, shift, residual, partial, pairs, height, width, top, sums, has_residual, clips,
    CHANNELS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """A 3x3 convolution of two pixels at a time, and either its sums or all that follows a batch norm."""
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
        if sums:
            total += tl.sum(value, 0)
            squares += tl.sum(value * value, 0)
        else:
            value = value * tl.load(scale + n % CHANNELS)[None, :] + tl.load(shift + n % CHANNELS)[None, :]
            if has_residual:
                value += tl.load(residual + to, mask=inside[:, None], other=0.0).to(tl.float32)
            if clips:
                value = tl.minimum(tl.maximum(value, 0.0), top)
        tl.store(y + to, value.to(tl.bfloat16), mask=inside[:, None])
    if sums:
        tl.store(partial + program * 4 * CHANNELS + n, total)
        tl.store(partial + program * 4 * CHANNELS + 2 * CHANNELS + n, squares)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and population variance of each channel."""
    channels = x.shape[1]
    rows = x.numel() // channels
    block = min(128, triton.next_power_of_2(channels))
    height = TILE // block
    programs = min(PROGRAMS, triton.cdiv(rows, height))
    partial = torch.empty(programs, 2, channels, device=x.device)
    grid = (programs, triton.cdiv(channels, block))
    _moments_kernel[grid](x, partial, rows, channels, block, height, num_warps=8)
    return _finished(partial, rows, channels)


def activate(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    residual: torch.Tensor | None,
    top: float | None,
) -> torch.Tensor:
    """scale x + shift, plus a residual, cut off below 0 and above `top`."""
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
    """A 3x3 convolution of 16 channels and what follows its batch norm."""
    y = torch.empty_like(x)
    pairs = x.numel() // (2 * CHANNELS)
    given = x if residual is None else residual
    clips = (min(top or 0.0, NO_TOP), 0, int(residual is not None), int(top is not None))
    _convolve_kernel[(triton.cdiv(pairs, PAIRS),)](
        x, weight, y, scale, shift, given, scale, pairs, *x.shape[2:], *clips, CHANNELS, PAIRS, num_warps=4
    )
    return y


def convolve_with_moments(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A 3x3 convolution of 16 channels, and mean and population variance of what it gives."""
    y = torch.empty_like(x)
    pairs = x.numel() // (2 * CHANNELS)
    programs = min(PROGRAMS, triton.cdiv(pairs, PAIRS))
    partial = torch.empty(programs, 2, 2, CHANNELS, device=x.device)
    _convolve_kernel[(programs,)](
        x, weight, y, partial, partial, x, partial, pairs, *x.shape[2:], 0.0, 1, 0, 0, CHANNELS, PAIRS, num_warps=4
    )
    return y, *_finished(partial, 2 * pairs, CHANNELS)


def _finished(partial: torch.Tensor, count: int, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    mean, variance = torch.empty(2, channels, device=partial.device).unbind()
    repeats = partial[0].numel() // (2 * channels)
    grid = (triton.cdiv(channels, 16),)
    _finish_kernel[grid](partial, mean, variance, len(partial), float(count), channels, repeats, 64)
    return mean, variance
