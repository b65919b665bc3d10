"""3x3 convolutions of few channels in Triton, with gradients: bfloat16 with channels last, sums in single precision.

In memory the channels of neighbouring pixels are adjacent. A row of a matrix is a window of several input pixels of one
line, and produces one output pixel or several: a product is large enough for tensor cores even with 8 channels. Nothing
waits for the device, so that a step can be captured in a CUDA graph. All sums have a fixed order, so that results
repeat bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from aacp.accelerate.convolutions import VECTOR

CHANNELS_LAST = torch.channels_last
SUMMED = 4096  # partial sums that a program adds up at once


class Blocks(NamedTuple):
    """How a kernel divides its work.

    Args:
        pixels: output pixels of a line that a row of the matrix covers.
        span: input pixels of a line that a product takes at once.
        rows: rows of the matrix in a tile.
        warps: warps of a program.
        stages: tiles in flight; with 1, loads go through the first-level cache.
        programs: most programs of a weight gradient, each of which writes a partial sum.
    """

    pixels: int
    span: int
    rows: int
    warps: int
    stages: int
    programs: int = 0


@triton.jit
def _places(tile, WIDTH: tl.constexpr, PIXELS: tl.constexpr, ROWS: tl.constexpr):
    """The line of each row of a tile, among the lines of all images, and the first column of its output pixels."""
    per_line: tl.constexpr = (WIDTH + PIXELS - 1) // PIXELS
    row = tile * ROWS + tl.arange(0, ROWS)
    return row // per_line, row % per_line * PIXELS


@triton.jit
def _pixels(x, line, column, known, channels, WIDTH: tl.constexpr, SPAN: tl.constexpr, PADDED: tl.constexpr):
    """Where the channels of neighbouring pixels are, from a column on, and which of them exist."""
    k = tl.arange(0, SPAN * PADDED)
    q, channel = k // PADDED, k % PADDED
    at = (line * WIDTH + column)[:, None] * channels + (q * channels + channel)[None, :]
    across = column[:, None] + q[None, :]
    return x + at, known[:, None] & (across >= 0) & (across < WIDTH) & (channel < channels)[None, :]


@triton.jit
def _window(
    x, line, left, lines, channels,
    DOWN: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The input pixels one line above each row's line (DOWN = 0), on it (1) or below it (2); 0 outside the image."""
    in_image = line % HEIGHT + DOWN - 1
    known = (line < lines) & (in_image >= 0) & (in_image < HEIGHT)
    at, seen = _pixels(x, line + DOWN - 1, left, known, channels, WIDTH, SPAN, PADDED)
    return tl.load(at, mask=seen, other=0.0)


@triton.jit
def _taps(
    weight, first, in_channels, out_channels, DOWN: tl.constexpr, FLIPPED: tl.constexpr,
    PIXELS: tl.constexpr, SPAN: tl.constexpr, PADDED_IN: tl.constexpr, PADDED_OUT: tl.constexpr,
):  # fmt: skip
    """The matrix from input pixels, the first of which is number `first` of the window, to output pixels."""
    k, n = tl.arange(0, SPAN * PADDED_IN)[:, None], tl.arange(0, PIXELS * PADDED_OUT)[None, :]
    right = first + k // PADDED_IN - n // PADDED_OUT
    source, target = k % PADDED_IN, n % PADDED_OUT
    if FLIPPED:
        at = (source * 9 + 8 - DOWN * 3 - right) * out_channels + target
    else:
        at = (target * 9 + DOWN * 3 + right) * in_channels + source
    known = (right >= 0) & (right < 3) & (source < in_channels) & (target < out_channels)
    return tl.load(weight + at, mask=known, other=0.0)


@triton.jit(do_not_specialize=["lines", "in_vectors", "out_vectors"])
def _convolve_kernel(
    x, weight, y, partial, shift, lines, in_vectors, out_vectors,
    FLIPPED: tl.constexpr, SUMS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, VECTOR: tl.constexpr,
    PADDED_IN: tl.constexpr, PADDED_OUT: tl.constexpr,
    PIXELS: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The convolution, or with the flipped and transposed kernel the gradient of its inputs.

    With SUMS also the sums of the tile, as it is stored, for each output pixel of a row and each channel: sums of
    differences from `shift`, and of their squares.
    """
    in_channels, out_channels = in_vectors * VECTOR, out_vectors * VECTOR
    line, left = _places(tl.program_id(0), WIDTH, PIXELS, ROWS)
    value = tl.zeros((ROWS, PIXELS * PADDED_OUT), tl.float32)
    for first in tl.range(0, PIXELS + 2, SPAN, num_stages=STAGES):
        start = left + first - 1
        # All loads come before the products, which wait for all threads.
        x_0 = _window(x, line, start, lines, in_channels, 0, HEIGHT, WIDTH, SPAN, PADDED_IN)
        x_1 = _window(x, line, start, lines, in_channels, 1, HEIGHT, WIDTH, SPAN, PADDED_IN)
        x_2 = _window(x, line, start, lines, in_channels, 2, HEIGHT, WIDTH, SPAN, PADDED_IN)
        w_0 = _taps(weight, first, in_channels, out_channels, 0, FLIPPED, PIXELS, SPAN, PADDED_IN, PADDED_OUT)
        w_1 = _taps(weight, first, in_channels, out_channels, 1, FLIPPED, PIXELS, SPAN, PADDED_IN, PADDED_OUT)
        w_2 = _taps(weight, first, in_channels, out_channels, 2, FLIPPED, PIXELS, SPAN, PADDED_IN, PADDED_OUT)
        value = tl.dot(x_0, w_0, value)
        value = tl.dot(x_1, w_1, value)
        value = tl.dot(x_2, w_2, value)
    at, known = _pixels(y, line, left, line < lines, out_channels, WIDTH, PIXELS, PADDED_OUT)
    stored = value.to(tl.bfloat16)
    tl.store(at, stored, mask=known)
    if SUMS:
        n = tl.arange(0, PIXELS * PADDED_OUT)
        pixel, channel = n // PADDED_OUT, n % PADDED_OUT
        exists = channel < out_channels
        middle = tl.load(shift + channel, mask=exists, other=0.0)
        difference = tl.where(known, stored.to(tl.float32) - middle[None, :], 0.0)
        to = partial + (tl.program_id(0) * 2 * PIXELS + pixel) * out_channels + channel
        tl.store(to, tl.sum(difference, 0), mask=exists)
        tl.store(to + PIXELS * out_channels, tl.sum(difference * difference, 0), mask=exists)


@triton.jit(do_not_specialize=["lines", "in_vectors", "out_vectors"])
def _products_kernel(
    x, dy, partial, lines, in_vectors, out_vectors,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, VECTOR: tl.constexpr,
    PADDED_IN: tl.constexpr, PADDED_OUT: tl.constexpr,
    PIXELS: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Products of input pixels with gradients of output pixels, added up over the tiles of a program."""
    in_channels, out_channels = in_vectors * VECTOR, out_vectors * VECTOR
    first = tl.program_id(1) * SPAN
    total_0 = tl.zeros((SPAN * PADDED_IN, PIXELS * PADDED_OUT), tl.float32)
    total_1 = tl.zeros((SPAN * PADDED_IN, PIXELS * PADDED_OUT), tl.float32)
    total_2 = tl.zeros((SPAN * PADDED_IN, PIXELS * PADDED_OUT), tl.float32)
    tiles = tl.cdiv(lines * ((WIDTH + PIXELS - 1) // PIXELS), ROWS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        line, left = _places(tile, WIDTH, PIXELS, ROWS)
        at, known = _pixels(dy, line, left, line < lines, out_channels, WIDTH, PIXELS, PADDED_OUT)
        gradient = tl.load(at, mask=known, other=0.0)
        start = left + first - 1
        x_0 = _window(x, line, start, lines, in_channels, 0, HEIGHT, WIDTH, SPAN, PADDED_IN)
        x_1 = _window(x, line, start, lines, in_channels, 1, HEIGHT, WIDTH, SPAN, PADDED_IN)
        x_2 = _window(x, line, start, lines, in_channels, 2, HEIGHT, WIDTH, SPAN, PADDED_IN)
        total_0 = tl.dot(tl.trans(x_0), gradient, total_0)
        total_1 = tl.dot(tl.trans(x_1), gradient, total_1)
        total_2 = tl.dot(tl.trans(x_2), gradient, total_2)
    k, n = tl.arange(0, SPAN * PADDED_IN)[:, None], tl.arange(0, PIXELS * PADDED_OUT)[None, :]
    size: tl.constexpr = SPAN * PADDED_IN * PIXELS * PADDED_OUT
    to = partial + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * 3 * size + k * PIXELS * PADDED_OUT + n
    tl.store(to, total_0)
    tl.store(to + size, total_1)
    tl.store(to + 2 * size, total_2)


@triton.jit(do_not_specialize=["programs", "in_channels", "out_channels"])
def _sum_kernel(
    partial, dweight, programs, in_channels, out_channels,
    PADDED_IN: tl.constexpr, PADDED_OUT: tl.constexpr, PIXELS: tl.constexpr, SPAN: tl.constexpr,
    AT_ONCE: tl.constexpr, ELEMENTS: tl.constexpr,
):  # fmt: skip
    """The gradient of some weights from partial sums, which hold every output pixel of a row by itself."""
    steps: tl.constexpr = (PIXELS + 1) // SPAN + 1
    element = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    target, source, tap = element % PADDED_OUT, element // PADDED_OUT % PADDED_IN, element // (PADDED_OUT * PADDED_IN)
    down, right = tap // 3, tap % 3
    known = (source < in_channels) & (target < out_channels)
    total = tl.zeros((AT_ONCE, ELEMENTS), tl.float32)
    for start in range(0, programs, AT_ONCE):
        program = start + tl.arange(0, AT_ONCE)
        inside = (program < programs)[:, None] & known[None, :]
        for pixel in tl.static_range(PIXELS):
            place = right + pixel
            row = ((place // SPAN * 3 + down) * SPAN + place % SPAN) * PADDED_IN + source
            column = pixel * PADDED_OUT + target
            at = program[:, None] * (steps * 3 * SPAN * PADDED_IN) + row[None, :]
            total += tl.load(partial + at * (PIXELS * PADDED_OUT) + column[None, :], mask=inside, other=0.0)
    to = dweight + (target * 9 + tap) * in_channels + source
    tl.store(to, tl.sum(total, 0).to(tl.bfloat16), mask=known)


def convolve(x: torch.Tensor, weight: torch.Tensor, blocks: Blocks | None = None) -> torch.Tensor:
    """The convolution of activations with a kernel of 3x3, with stride 1 and padding 1."""
    return _convolved(x, weight, weight.shape[0], False, blocks)[0]


def convolve_with_moments(
    x: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor, blocks: Blocks | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The convolution, and partial sums of its outputs for a batch norm: [programs, 2, pixels, channels].

    The sums are of differences from `shift`, which has a number per channel near the mean, and of their squares: for
    values far from 0 the variance would be lost in rounding.
    """
    return _convolved(x, weight, weight.shape[0], False, blocks, shift)


def input_gradient(dy: torch.Tensor, weight: torch.Tensor, blocks: Blocks | None = None) -> torch.Tensor:
    """The gradient of the inputs of the convolution."""
    return _convolved(dy, weight, weight.shape[1], True, blocks)[0]


def weight_gradient(x: torch.Tensor, dy: torch.Tensor, blocks: Blocks | None = None) -> torch.Tensor:
    """The gradient of the kernel of the convolution."""
    n, in_channels, height, width = x.shape
    out_channels = dy.shape[1]
    blocks = blocks or weight_blocks(in_channels, out_channels)
    padded = _padded(in_channels, blocks.span), _padded(out_channels, blocks.pixels)
    tiles = triton.cdiv(n * height * triton.cdiv(width, blocks.pixels), blocks.rows)
    grid = (min(blocks.programs, tiles), triton.cdiv(blocks.pixels + 2, blocks.span))
    size = 3 * blocks.span * padded[0] * blocks.pixels * padded[1]
    partial = torch.empty(*grid, size, device=x.device, dtype=torch.float32)
    vectors = in_channels // VECTOR, out_channels // VECTOR
    _products_kernel[grid](
        x, dy, partial, n * height, *vectors, height, width, VECTOR, *padded, *blocks[:3], blocks.stages,
        num_warps=blocks.warps,
    )  # fmt: skip
    dweight = torch.empty(out_channels, in_channels, 3, 3, device=x.device, dtype=x.dtype, memory_format=CHANNELS_LAST)
    elements = max(16, padded[0] * padded[1] // 64)
    _sum_kernel[(9 * padded[0] * padded[1] // elements,)](
        partial,
        dweight,
        grid[0],
        in_channels,
        out_channels,
        *padded,
        *blocks[:2],
        SUMMED // elements,
        elements,
        num_warps=4,
    )
    return dweight


def _convolved(
    x: torch.Tensor,
    weight: torch.Tensor,
    out_channels: int,
    is_flipped: bool,
    blocks: Blocks | None,
    shift: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    n, in_channels, height, width = x.shape
    blocks = blocks or convolution_blocks(in_channels, out_channels)
    y = torch.empty(n, out_channels, height, width, device=x.device, dtype=x.dtype, memory_format=CHANNELS_LAST)
    padded = _padded(in_channels, blocks.span), _padded(out_channels, blocks.pixels)
    rows = n * height * triton.cdiv(width, blocks.pixels)
    vectors = in_channels // VECTOR, out_channels // VECTOR
    programs, partial = triton.cdiv(rows, blocks.rows), None
    if shift is not None:
        partial = torch.empty(programs, 2, blocks.pixels, out_channels, device=x.device)
    sums = (y, y) if shift is None else (partial, shift)  # without sums the kernel uses neither
    _convolve_kernel[(programs,)](
        x, weight, y, *sums, n * height, *vectors, is_flipped, shift is not None, height, width, VECTOR, *padded,
        *blocks[:3], blocks.stages, num_warps=blocks.warps,
    )  # fmt: skip
    return y, partial


def _padded(channels: int, pixels: int) -> int:
    """The channels of a pixel in a tile: a power of two, and at least 16 for all pixels together."""
    return max(triton.next_power_of_2(channels), 16 // pixels)


def convolution_blocks(in_channels: int, out_channels: int) -> Blocks:
    """How a convolution is divided, or the gradient of its inputs: the fastest way on an H200."""
    if max(in_channels, out_channels) <= 16:
        return Blocks(2, 4, 256, 8, 1)
    if max(in_channels, out_channels) <= 32:
        return Blocks(2, 4, 64, 4, 1)
    return Blocks(1, 1, 64, 4, 3)


def weight_blocks(in_channels: int, out_channels: int) -> Blocks:
    """How the gradient of the kernel is divided: the fastest way on an H200.

    Where all channels are few, several output pixels share a row. The input pixels of a span have 64 channels together.
    """
    if max(in_channels, out_channels) <= 16:
        return Blocks(4, 8, 128, 8, 1, 132) if in_channels <= 8 else Blocks(2, 4, 64, 4, 3, 264)
    if in_channels <= 16:
        return Blocks(1, 4, 64, 4, 3, 132)
    if in_channels <= 32:
        return Blocks(1, 2, 64, 4, 3, 66)
    return Blocks(1, 1, 64, 4, 3, 22)


def self_test() -> None:
    """Run every kernel once on tiny tensors, so that a failure shows here and not in training."""
    x = torch.zeros(2, 8, 2, 2, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=CHANNELS_LAST)
    weight = torch.zeros(8, 8, 3, 3, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=CHANNELS_LAST)
    y = convolve(x, weight)
    convolve_with_moments(x, weight, torch.zeros(8, device="cuda"))
    input_gradient(y, weight)
    weight_gradient(x, y)
    torch.cuda.synchronize()
