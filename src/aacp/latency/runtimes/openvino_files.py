"""Functions that write OpenVINO files, compile them for the CPU, and run them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from aacp.latency.runtimes.converted import RunFile
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[openvino]'"


def read_model(path: Path) -> Any:
    """Return a file, in OpenVINO's format or ONNX, as a model of OpenVINO."""
    return _core().read_model(path)


def save_model(model: Any, path: Path) -> None:
    """Write a model of OpenVINO as an .xml file, with the weights in a .bin file beside it."""
    require_package("openvino", INSTALL).save_model(model, path, compress_to_fp16=False)


def compiled(path: Path, threads: int, *, profile: bool = False) -> Any:
    """Compile a file for the CPU; with `profile`, the network counts the time of its operators."""
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 on CPUs that have it
        # With pinning, all networks that are timed in turns would run on the same cores, even if these are busy.
        "ENABLE_CPU_PINNING": False,
        "PERF_COUNT": profile,
    }
    return _core().compile_model(read_model(path), "CPU", options)


class OpenVinoFile:
    """A file that is compiled for the CPU."""

    def __init__(self, path: Path, threads: int) -> None:
        self._compiled = compiled(path, threads)

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return [tuple(entry.shape) for entry in self._compiled.inputs]

    def bound_to(self, tensors: Sequence[Tensor]) -> RunFile:
        """Return a call that runs the network, with the inputs as they are in memory."""
        request = self._compiled.create_infer_request()
        inputs = arrays_of(tensors)
        return lambda: list(request.infer(inputs, share_inputs=True).values())


def arrays_of(tensors: Sequence[Tensor]) -> list[Any]:
    """Return tensors on the CPU as numpy arrays, which OpenVINO takes as inputs."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


@cache
def _core() -> Any:
    return require_package("openvino", INSTALL).Core()
