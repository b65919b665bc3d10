"""Claim: on an H200, our 3x3 convolutions of few channels take less time than cuDNN's, where training uses them.

The shapes are those of ResNet56 in bf16 with channels last, and some larger ones of as many channels. Each
operation runs 20 times in a CUDA graph, which is replayed 20 times; a time is the median of the replays, divided by 20.
Ours is timed for several ways to divide the work. Kernels are compiled first, by several processes.

PYTHONPATH=src:benchmarks python benchmarks/convolution_speed.py [--out FILE] [--operation forward ...]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from halving import circumstances

if TYPE_CHECKING:
    from aacp.accelerate.kernels.convolutions import Blocks

OPERATIONS = ("forward", "inputs", "weights")
REPETITIONS = 20
TOLERANCE = 1e-2  # relative to the largest element: results are rounded to bf16, which is half as much


class Shape(NamedTuple):
    batch: int
    in_channels: int
    out_channels: int
    size: int


SHAPES = [Shape(128, *channels, 32) for channels in ((16, 16), (16, 8), (8, 16))]
SHAPES += [Shape(128, *channels, 16) for channels in ((32, 32), (32, 24), (24, 32), (32, 16), (16, 32))]
SHAPES += [Shape(128, *channels, 8) for channels in ((64, 64), (64, 48), (48, 64), (64, 32), (32, 64))]
SHAPES += [Shape(512, 32, 32, 16), Shape(512, 64, 64, 8), Shape(128, 32, 32, 32), Shape(128, 48, 48, 32)]
LARGE = [Shape(4096, 16, 16, 32), Shape(4096, 32, 32, 16), Shape(4096, 64, 64, 8)]  # forward only, as estimates do

# Pixels, span, rows, warps, stages, programs; up to a number of channels, for convolutions on the wider side.
CONVOLUTIONS = {
    16: [(2, 4, 128, 4, 1), (2, 4, 64, 4, 1), (2, 4, 128, 8, 1), (2, 4, 256, 8, 1), (1, 4, 128, 4, 1)],
    32: [(2, 4, 64, 4, 1), (2, 2, 64, 4, 1), (1, 4, 64, 4, 1), (1, 4, 128, 8, 1), (1, 2, 64, 4, 2), (1, 1, 64, 4, 3)],
    64: [(1, 1, 64, 4, 3), (1, 1, 64, 4, 1), (1, 2, 64, 4, 2), (1, 2, 64, 8, 1), (1, 1, 32, 4, 3), (2, 1, 64, 8, 2)],
}
# For gradients of weights the inputs decide: the pixels of a span together need 64 channels for the fastest products.
WEIGHTS = {
    8: [(4, 8, 64, 4, 1, 264), (4, 8, 128, 8, 1, 132), (4, 8, 64, 4, 2, 264), (4, 8, 64, 4, 3, 132)],
    16: [
        (2, 4, 64, 4, 1, 264),
        (2, 4, 128, 8, 1, 132),
        (2, 4, 64, 4, 3, 264),
        (2, 4, 64, 4, 2, 132),
        (1, 4, 128, 4, 1, 264),
        (1, 4, 64, 4, 3, 132),
    ],
    32: [
        (1, 4, 64, 8, 1, 132),
        (1, 4, 64, 8, 2, 66),
        (1, 2, 64, 4, 1, 66),
        (1, 2, 64, 4, 3, 66),
        (1, 2, 64, 4, 2, 132),
        (1, 2, 128, 8, 1, 66),
    ],
    64: [
        (1, 1, 64, 4, 1, 44),
        (1, 1, 64, 4, 2, 44),
        (1, 1, 64, 4, 3, 22),
        (1, 1, 64, 8, 2, 32),
        (1, 1, 128, 8, 2, 32),
        (1, 2, 64, 8, 2, 64),
    ],
}


class Tensors(NamedTuple):
    x: Tensor
    weight: Tensor
    dy: Tensor


def tensors_of(shape: Shape) -> Tensors:
    """Random activations, kernel and gradient."""
    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(*sizes: int) -> Tensor:
        values = torch.randn(sizes, device="cuda", generator=generator)
        return values.bfloat16().contiguous(memory_format=torch.channels_last)

    n, i, o, size = shape
    return Tensors(drawn(n, i, size, size), drawn(o, i, 3, 3), drawn(n, o, size, size))


def torchs(operation: str, given: Tensors) -> Tensor:
    """What torch computes."""
    x, weight, dy = given
    if operation == "forward":
        return F.conv2d(x, weight, padding=1)
    wanted = [operation == "inputs", operation == "weights", False]
    one = [1, 1]
    found = torch.ops.aten.convolution_backward(dy, x, weight, None, one, one, one, False, [0, 0], 1, wanted)
    return found[0] if wanted[0] else found[1]


def ours(operation: str, given: Tensors, blocks: Blocks | None) -> Tensor:
    """What our kernels compute."""
    from aacp.accelerate.kernels import convolutions

    x, weight, dy = given
    if operation == "forward":
        return convolutions.convolve(x, weight, blocks)
    if operation == "inputs":
        return convolutions.input_gradient(dy, weight, blocks)
    return convolutions.weight_gradient(x, dy, blocks)


def candidates(operation: str, shape: Shape) -> list[Blocks]:
    from aacp.accelerate.kernels.convolutions import Blocks

    table = WEIGHTS if operation == "weights" else CONVOLUTIONS
    channels = shape.in_channels if operation == "weights" else max(shape.in_channels, shape.out_channels)
    return [Blocks(*numbers) for numbers in table[min(limit for limit in table if channels <= limit)]]


def distinct_kernels(cases: list[tuple[str, Shape]]) -> list[tuple[str, Shape, Blocks]]:
    """All candidates, but only one of those that share a compiled kernel, which knows channels as powers of two."""
    found = {}
    for operation, shape in cases:
        padded = [2 ** (channels - 1).bit_length() for channels in shape[1:3]]
        for blocks in candidates(operation, shape):
            found[(operation, *padded, shape.size, blocks[:5])] = (operation, shape, blocks)
    return list(found.values())


def compile_for(job: tuple[str, Shape, Blocks]) -> None:
    """Run a kernel once, so that its compiled form is in the cache on disk; errors show when it is timed."""
    operation, shape, blocks = job
    try:
        ours(operation, tensors_of(shape._replace(batch=2)), blocks)
        torch.cuda.synchronize()
    except Exception as error:
        print(f"    not compiled: {operation} {tuple(shape)} {tuple(blocks)}: {first_line(error)}", flush=True)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]


def microseconds(call: Callable[[], object]) -> float:
    """The time of a call in a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(REPETITIONS):
            call()
    times = []
    for _ in range(REPETITIONS):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended) * 1000 / REPETITIONS)
    return statistics.median(times)


def error_of(found: Tensor, exact: Tensor) -> float:
    """The largest difference, relative to the largest element."""
    return float((found.float() - exact).abs().max() / exact.abs().max())


def row_of(operation: str, shape: Shape) -> dict[str, Any]:
    """The times of an operation: cuDNN's, and ours for every candidate that works."""
    given = tensors_of(shape)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        exact = torchs(operation, Tensors(*(tensor.float() for tensor in given)))
    row: dict[str, Any] = {"operation": operation, **shape._asdict()}
    row["cudnn us"] = round(microseconds(lambda: torchs(operation, given)), 2)
    row["cudnn error"] = error_of(torchs(operation, given), exact)
    row["tried"] = []
    for blocks in candidates(operation, shape):
        try:
            error = error_of(ours(operation, given, blocks), exact)
            if not error < TOLERANCE:
                raise ValueError(f"relative error {error:.3g}")
            duration = microseconds(lambda blocks=blocks: ours(operation, given, blocks))  # type: ignore[misc]
        except Exception as failure:  # the other candidates are still measured
            print(f"    failed: {operation} {tuple(shape)} {tuple(blocks)}: {first_line(failure)}", flush=True)
            continue
        row["tried"].append({"us": round(duration, 2), "blocks": list(blocks), "error": error})
    row["tried"].sort(key=lambda tried: tried["us"])
    return row


def shown(row: dict[str, Any]) -> str:
    """A line of the table: the best of ours and its blocks, then the times of the others."""
    sizes = f"{row['batch']:5} {row['in_channels']:3} ->{row['out_channels']:3} at {row['size']:2}"
    best, *others = row["tried"] or [{"us": float("nan"), "blocks": [], "error": float("nan")}]
    rest = "  ".join(f"{other['us']:.1f} {tuple(other['blocks'])}" for other in others)
    numbers = f"{row['cudnn us']:7.2f} {best['us']:7.2f} {row['cudnn us'] / best['us']:5.2f}x  {best['error']:.1e}"
    return f"{row['operation']:8} {sizes} {numbers}  {tuple(best['blocks'])}   | {rest}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "convolution_speed.json")
    parser.add_argument("--operation", nargs="+", default=OPERATIONS, choices=OPERATIONS)
    parser.add_argument("--processes", type=int, default=min(12, os.cpu_count() or 1), help="processes that compile")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    cases = [(operation, shape) for operation in options.operation for shape in SHAPES]
    cases += [("forward", shape) for shape in LARGE if "forward" in options.operation]
    begun = time.perf_counter()
    jobs = distinct_kernels(cases)
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_for, jobs))
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - begun:.0f} s", flush=True)
    print("operation batch in -> out   cuDNN us  ours us          error  blocks and the times of others", flush=True)
    rows = []
    for case in cases:
        try:
            rows.append(row_of(*case))
        except Exception as error:  # the other shapes are still measured
            print(f"    failed: {case}: {first_line(error)}", flush=True)
            continue
        print(shown(rows[-1]), flush=True)
        options.out.write_text(json.dumps({**circumstances(), "rows": rows}, indent=1) + "\n")
    print(f"{time.perf_counter() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
