"""Delivery: the pruned network as files, and how it compares as such with the original: size, exactness, time."""

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
from aacp.latency.deployment import Deployment
from aacp.latency.runtimes import time_networks
from aacp.latency.timing import Timing
from aacp.modules import named_tensors
from aacp.runs.files import EXPORT, BeforeAfter, Latency, OnnxRecord
from aacp.runs.folder import RunFolder
from aacp.structure import Structure

ARTEFACT = "pruned.safetensors"
ONNX = {"original": "original.onnx", "pruned": "pruned.onnx"}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def save_network(
    folder: RunFolder, network: nn.Module, graph: ChannelGraph, structure: Structure, model: str, example: Any
) -> Path:
    """The pruned network as safetensors, unless it is there; a file that was cut short is written anew."""
    path = folder.path / ARTEFACT
    if not _is_whole(path):
        name = model if ":" in model or model.islower() else None  # a class is no name that builds a network
        save(network.cpu(), graph, path, model=name, example=example, metadata={"structure": list(structure)})
    return path


def _is_whole(path: Path) -> bool:
    try:
        with safe_open(path, "pt"):  # which compares the length of the file with its header
            return True
    except (SafetensorError, FileNotFoundError):
        return False


def file_bytes(network: nn.Module) -> int:
    """What the weights of a network take as safetensors."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in named_tensors(network)}
    return len(serialised(tensors))


def export_both(
    folder: RunFolder, original: nn.Module, pruned: nn.Module, example: Any, where: Deployment
) -> OnnxRecord | None:
    """Both networks as ONNX, compared with torch and timed in turns in both runtimes; None where ONNX is missing."""
    known = folder.read_json(EXPORT)
    if known is not None:
        return OnnxRecord.from_json(known)
    if not all(map(find_spec, PACKAGES)):
        return None
    networks = {"original": original, "pruned": pruned}
    files = {name: export_onnx(networks[name], folder.path / ONNX[name], example) for name in networks}
    in_torch = time_networks(networks, example, threads=where.threads, batch=where.batch, device=where.device)
    paths = {name: found.path for name, found in files.items()}
    in_onnx = time_networks(paths, example, threads=where.threads, batch=where.batch)
    timings = (
        _compared(f"torch {torch.__version__}", in_torch, where, where.device),
        _compared("ONNX Runtime", in_onnx, where, "cpu"),
    )
    differences = [found.largest_difference or 0.0 for found in files.values()]
    before, after = files["original"], files["pruned"]
    exported = OnnxRecord(before.opset, max(differences), before.file_bytes, after.file_bytes, timings)
    folder.write_json(EXPORT, exported.to_json())
    return exported


def _compared(runtime: str, timed: dict[str, Timing], where: Deployment, device: str) -> BeforeAfter:
    before, after = (_latency(timed[name]) for name in ("original", "pruned"))
    repeats = len(timed["pruned"].seconds)
    words = f"{runtime}, {where.threads} threads" if device == "cpu" else runtime
    name = "CPU" if device == "cpu" else torch.cuda.get_device_name(device)
    return BeforeAfter(words, name, where.batch, repeats, before, after)


def _latency(timed: Timing) -> Latency:
    spread = timed.spread
    return Latency(spread.median, spread.lower, spread.upper)
