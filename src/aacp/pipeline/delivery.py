"""Delivery: the pruned network as files, and how these compare with the original in size, outputs and time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import nn

from aacp.artefact.onnx import export_onnx
from aacp.artefact.storage import save
from aacp.channels import ChannelGraph
from aacp.estimate.inheritance import KeptChannels
from aacp.latency.deployment import Deployment
from aacp.latency.runtimes import time_networks
from aacp.latency.timing import Timing
from aacp.modules import named_tensors
from aacp.runs.files import EXPORT, BeforeAfter, Latency, OnnxRecord
from aacp.runs.folder import RunFolder

ARTEFACT = "pruned.safetensors"
ORIGINAL_ONNX = "original.onnx"
PRUNED_ONNX = "pruned.onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # what an export needs


def save_network(
    folder: RunFolder, network: nn.Module, graph: ChannelGraph, kept: KeptChannels, name: str | None, example: Any
) -> Path:
    """Write the pruned network as safetensors, unless the file is there and complete.

    Args:
        folder: the run folder.
        network: the pruned network; it is not changed.
        graph: the channel graph that it was cut along.
        kept: the channels that each group keeps.
        name: the name that `build_model` builds the original by, or None.
        example: an input, recorded by its shape.
    """
    path = folder.path / ARTEFACT
    if not _is_complete(path):
        structure = [len(channels) for channels in kept.values()]
        save(network, graph, path, kept=kept, model=name, example=example, metadata={"structure": structure})
    return path


def _is_complete(path: Path) -> bool:
    try:
        with safe_open(path, "pt"):  # which compares the length of the file with its header
            return True
    except (SafetensorError, FileNotFoundError):
        return False


def file_bytes(network: nn.Module) -> int:
    """The size of a network's weights as safetensors."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in named_tensors(network)}
    return len(serialised(tensors))


def export_both(
    folder: RunFolder, original: nn.Module, pruned: nn.Module, example: Any, where: Deployment
) -> OnnxRecord | None:
    """Write both networks as ONNX, compare them with torch, and time them in both runtimes.

    Returns None if the packages for ONNX are not installed.
    """
    known = folder.read_json(EXPORT)
    if known is not None:
        return OnnxRecord.from_json(known)
    if not all(map(find_spec, PACKAGES)):
        return None
    before = export_onnx(original, folder.path / ORIGINAL_ONNX, example)
    after = export_onnx(pruned, folder.path / PRUNED_ONNX, example)
    networks = {"original": original, "pruned": pruned}
    files = {"original": before.path, "pruned": after.path}
    in_torch = time_networks(networks, example, threads=where.threads, batch=where.batch, device=where.device)
    in_onnx = time_networks(files, example, threads=where.threads, batch=where.batch)
    timings = (
        _compared(f"torch {torch.__version__}", in_torch, where, where.device),
        _compared("ONNX Runtime", in_onnx, where, "cpu"),
    )
    difference = max(before.largest_difference or 0.0, after.largest_difference or 0.0)
    exported = OnnxRecord(before.opset, difference, before.file_bytes, after.file_bytes, timings)
    folder.write_json(EXPORT, exported.to_json())
    return exported


def _compared(runtime: str, timed: dict[str, Timing], where: Deployment, device: str) -> BeforeAfter:
    words = f"{runtime}, {where.threads} threads" if device == "cpu" else runtime
    name = "CPU" if device == "cpu" else torch.cuda.get_device_name(device)
    repeats = len(timed["pruned"].seconds)
    return BeforeAfter(words, name, where.batch, repeats, _latency(timed["original"]), _latency(timed["pruned"]))


def _latency(timed: Timing) -> Latency:
    spread = timed.spread
    return Latency(spread.median, spread.lower, spread.upper)
