"""The runtimes that can be named: those of the library, and those that users register."""

from __future__ import annotations

import importlib

from aacp.errors import InvalidOption
from aacp.latency.runtimes.runtime import Runtime
from aacp.user.options import require_known
from aacp.zoo.imports import named_object

# The runtimes of the library, imported when they are first used.
BUILT_IN = {
    "cuda-graphs": ("aacp.latency.runtimes.cuda_graphs", "CudaGraphs"),
    "executorch": ("aacp.latency.runtimes.executorch", "ExecuTorch"),
    "ncnn": ("aacp.latency.runtimes.ncnn", "Ncnn"),
    "onnxruntime": ("aacp.latency.runtimes.onnxruntime", "OnnxRuntime"),
    "openvino": ("aacp.latency.runtimes.openvino", "OpenVino"),
    "torch-compile": ("aacp.latency.runtimes.torch_compile", "TorchCompile"),
    "torch": ("aacp.latency.runtimes.torch", "TorchRuntime"),
}

# Runtimes that cannot be supported: why, and what to do.
UNSUPPORTED = {
    "litert": (
        "its converter excludes the supported version of torch (litert-torch 0.9.3 depends on torch<2.13.0). Use the "
        "runtime executorch on the same devices, or convert the delivered ONNX file with your own tools"
    ),
}

_runtimes: dict[str, Runtime] = {}  # those that are registered or were imported, by the name that finds them


def register_runtime(runtime: Runtime) -> None:
    """Make a runtime known by its name, for `Deployment(runtime=NAME)` and the command line.

    A second registration of the same name replaces the first, so that a notebook cell can run twice.
    """
    if not isinstance(runtime, Runtime):
        raise InvalidOption(f"{runtime!r} is not a runtime. Pass an object of a subclass of aacp.Runtime.")
    if runtime.name in BUILT_IN:
        raise InvalidOption(f"{runtime.name!r} is the name of a built-in runtime. Give yours another name.")
    _runtimes[runtime.name] = runtime


def runtime_names() -> list[str]:
    """Return the names of all runtimes that are built in or registered."""
    return sorted({*BUILT_IN, *(runtime.name for runtime in _runtimes.values())})


def find_runtime(runtime: str | Runtime) -> Runtime:
    """Return a runtime by name, by `package.module:NAME`, or unchanged if it is one already."""
    if isinstance(runtime, Runtime):
        return runtime
    if runtime not in _runtimes:
        _runtimes[runtime] = _import_runtime(runtime)
    return _runtimes[runtime]


def _import_runtime(name: str) -> Runtime:
    if name in BUILT_IN:
        module, entry = BUILT_IN[name]
        built_in: Runtime = getattr(importlib.import_module(module), entry)()
        return built_in
    if name in UNSUPPORTED:
        raise InvalidOption(f"The runtime {name} is not supported: {UNSUPPORTED[name]}.")
    if ":" not in name:
        require_known("runtime", name, runtime_names(), ", or name your own as package.module:NAME")
    given = named_object(name, InvalidOption)
    runtime = given() if isinstance(given, type) and issubclass(given, Runtime) else given
    if not isinstance(runtime, Runtime):
        raise InvalidOption(f"{name} is not a runtime. Name an object or a subclass of aacp.Runtime.")
    return runtime
