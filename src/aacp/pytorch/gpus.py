"""GPUs: the current one, what it computes in, its streams, and computations that are recorded as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def current_gpu(device: torch.device | str) -> Iterator[None]:
    """Make a GPU the current one, on which events, streams and Triton kernels are; other devices change nothing."""
    if torch.device(device).type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


def multiplies_bf16(device: torch.device) -> bool:
    """Whether a device is a GPU that multiplies in bfloat16; older ones emulate it, which takes longer than float32."""
    with current_gpu(device):
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def new_stream(device: torch.device | str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def run_apart(compute: Callable[[], T], stream: torch.cuda.Stream) -> T:
    """The result of a computation on another stream, for which the current stream waits afterwards."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = compute()
    torch.cuda.current_stream().wait_stream(stream)
    return result


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Record what is computed in this context in a CUDA graph, in place of computing it."""
    # By default torch records on a stream of the GPU that was current at the first recording of the process. The
    # recording is restricted to this thread, because a loader may pin memory in another one.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        yield


def recorded(
    compute: Callable[[], T], device: torch.device | str, *, prepares: bool = True
) -> tuple[torch.cuda.CUDAGraph, T]:
    """A computation as a CUDA graph, and the result that each replay of the graph writes to.

    Args:
        compute: the computation.
        device: the GPU.
        prepares: whether it runs once before, so that kernels are compiled and libraries are initialised.
    """
    with current_gpu(device):
        stream = new_stream(device)
        if prepares:
            run_apart(compute, stream)
        graph = torch.cuda.CUDAGraph()
        with recording(graph, stream):
            result = compute()
    return graph, result
