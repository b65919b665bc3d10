"""Runtimes: a network as a call that can be timed, in torch or in ONNX Runtime, with so many threads."""

from __future__ import annotations

import importlib
import os
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aacp.errors import ExportFailed, InvalidOption, MissingPackage, first_line
from aacp.graph.signature import with_batch
from aacp.latency.timing import Timing, time_interleaved
from aacp.modules import copy_module, positional

Network = nn.Module | str | os.PathLike[str]


def time_networks(
    networks: Mapping[str, Network],
    example: Any,
    *,
    threads: int = 1,
    batch: int | None = None,
    turns: int = 20,
    device: str = "cpu",
) -> dict[str, Timing]:
    """The seconds that networks take for an example, in turns: modules in torch, or ONNX files in ONNX Runtime.

    `batch` is the number of inputs at once, by default that of the example; `device` is for modules. The networks are
    not touched.
    """
    if threads < 1:
        raise InvalidOption(f"{threads} threads cannot run anything. Give 1 or more.")
    if len({isinstance(network, nn.Module) for network in networks.values()}) > 1:
        raise InvalidOption(
            "Modules and ONNX files are mixed, and the waiting threads of one runtime would slow the other down. "
            "Time each kind in a call of its own."
        )
    if device != "cpu" and not all(isinstance(network, nn.Module) for network in networks.values()):
        raise InvalidOption(
            f"ONNX Runtime is timed on the CPU, not on {device!r}. Leave the device out, or time modules."
        )
    arguments = example if batch is None else with_batch(example, batch)
    calls = {name: _call(network, arguments, threads, device) for name, network in networks.items()}
    with torch_threads(threads):
        return time_interleaved(calls, turns=turns)


def torch_call(model: nn.Module, example: Any, device: str = "cpu") -> Callable[[], object]:
    """A copy of the model in evaluation mode, as a call on the example that waits for its end."""
    twin, arguments = copy_module(model).eval().to(device), positional(model, on_device(example, device))

    def call() -> object:
        with torch.inference_mode():
            result = twin(*arguments)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return result

    return call


def on_device(example: Any, device: str) -> Any:
    """An example with its tensors on a device."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, example)


def onnx_call(path: str | os.PathLike[str], example: Any, threads: int = 1) -> Callable[[], object]:
    """An ONNX file as a call on the example."""
    session = onnx_session(path, threads)
    inputs = feeds(session, example)
    return lambda: session.run(None, inputs)


def onnx_session(path: str | os.PathLike[str], threads: int = 1, profile: str | os.PathLike[str] | None = None) -> Any:
    """An ONNX file in ONNX Runtime, on the CPU, with a fixed number of threads; `profile` begins a profile's name."""
    runtime = require_package("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, os.fspath(profile)
    # Threads that wait for the next call would take the processor from whatever is timed in between.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has a dozen kinds, all of its own
        raise ExportFailed(
            f"ONNX Runtime cannot open {Path(path).name}: {first_line(error)}. Export it again, or with another opset."
        ) from error


def feeds(session: Any, example: Any) -> dict[str, Any]:
    """The tensors of an example by the names of a session's inputs."""
    tensors = [leaf.detach().cpu().numpy() for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor)]
    names = [entry.name for entry in session.get_inputs()]
    if len(names) != len(tensors):
        raise InvalidOption(
            f"The exported network takes {len(names)} inputs ({', '.join(names)}), but the example holds "
            f"{len(tensors)} tensors. Give an example such as it was exported with."
        )
    return dict(zip(names, tensors, strict=True))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_package(name: str) -> types.ModuleType:
    """A package that only exports need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackage(f"{name} is not installed. Install it with: pip install 'aacp[onnx]'.") from error


def _call(network: Network, example: Any, threads: int, device: str) -> Callable[[], object]:
    if isinstance(network, nn.Module):
        return torch_call(network, example, device)
    return onnx_call(network, example, threads)
