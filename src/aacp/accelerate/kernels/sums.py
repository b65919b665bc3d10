"""Sums over the pixels of bfloat16 activations with channels last, in single precision, shared by the Triton kernels.

Every sum has a fixed order (partial sums of a fixed grid, then the sum of those), so results repeat bit for bit. The
number of channels is given as a multiple of a vector of up to eight, which the compiler knows: it loads whole vectors
at once and does not compile again for every width.
"""

# mypy: ignore-errors
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8  # most partial sums: enough to fill an H200 (132 multiprocessors), few enough to add up quickly
TILE = 4096  # elements that a program handles at once
VECTOR = 8  # bfloat16 numbers that one instruction loads
WIDEST = 128  # channels of a tile


@triton.jit
def channels_at(channels, WIDTH: tl.constexpr):
    """The channels of a tile, and which of them exist."""
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    return channel, channel < channels


@triton.jit
def elements_at(tile, rows, channel, known, channels, HEIGHT: tl.constexpr):
    """Where the elements of a tile are, and which of them exist."""
    row = (tile * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    return row[:, None] * channels + channel[None, :], (row < rows)[:, None] & known[None, :]


@triton.jit
def store_sums(partial, first, second, channel, known, channels):
    """Store the two sums of a program for each channel."""
    at = partial + tl.program_id(0) * 2 * channels + channel
    tl.store(at, tl.sum(first, 0), mask=known)
    tl.store(at + channels, tl.sum(second, 0), mask=known)


@triton.jit
def totals(partial, programs, channel, channels, REPEATS: tl.constexpr, HEIGHT: tl.constexpr):
    """Both sums of 16 channels over all programs; a program may hold several of each."""
    first = tl.zeros((HEIGHT, 16), tl.float32)
    second = tl.zeros((HEIGHT, 16), tl.float32)
    for start in range(0, programs, HEIGHT):
        row = start + tl.arange(0, HEIGHT)
        inside = (row < programs)[:, None] & (channel < channels)[None, :]
        for repeat in tl.static_range(REPEATS):
            at = partial + (row * 2 * REPEATS + repeat)[:, None] * channels + channel[None, :]
            first += tl.load(at, mask=inside, other=0.0)
            second += tl.load(at + REPEATS * channels, mask=inside, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def mean_and_variance(total, squares, count):
    """Mean and variance of values from their sum and their sum of squares."""
    mean = total / count
    return mean, tl.maximum(squares / count - mean * mean, 0.0)


@triton.jit
def first_of(x, channel, known):
    """The first element of each channel."""
    return tl.load(x + channel, mask=known, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "vectors"])
def _moments_kernel(x, partial, rows, vectors, VECTOR: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr):
    """Sum and sum of squares of the differences from each channel's first element, over the tiles of a program."""
    channels = vectors * VECTOR
    channel, known = channels_at(channels, WIDTH)
    first = first_of(x, channel, known)
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    squares = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, HEIGHT), tl.num_programs(0)):
        at, inside = elements_at(tile, rows, channel, known, channels, HEIGHT)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - first[None, :]
        value = tl.where(inside, value, 0.0)
        total += value
        squares += value * value
    store_sums(partial, total, squares, channel, known, channels)


def sizes(x: torch.Tensor, elements: int = TILE) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The sizes that a kernel needs (rows, vectors, vector, width and height of a tile), and the grid of tiles."""
    channels = x.shape[1]
    rows = x.numel() // channels
    vector = math.gcd(channels, VECTOR)
    width = min(WIDEST, triton.next_power_of_2(channels))
    height = elements // width
    return (rows, channels // vector, vector, width, height), (triton.cdiv(rows, height), triton.cdiv(channels, width))


def room_for_sums(x: torch.Tensor, tiles: int) -> torch.Tensor:
    """An empty tensor for two sums per channel of each program: one program per tile, at most PROGRAMS."""
    return torch.empty(min(PROGRAMS, tiles), 2, x.shape[1], device=x.device)


def moments(x: torch.Tensor) -> torch.Tensor:
    """Partial sums and sums of squares of each channel: [programs, 2, channels].

    The sums are of differences from the first element of the channel, because for values far from 0 the variance would
    be lost in rounding.
    """
    known, (tiles, columns) = sizes(x)
    partial = room_for_sums(x, tiles)
    _moments_kernel[(len(partial), columns)](x, partial, *known, num_warps=8, num_stages=1)
    return partial
