"""Delivery: the pruned network as files, and how these compare with the original in size, outputs and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.artefact.header import Artefact
from aacp.artefact.onnx import OPSET
from aacp.channels.graph import ChannelGraph
from aacp.disk.folders import names_in
from aacp.disk.tensors import tensor_bytes, tensor_header
from aacp.errors import BrokenArtefact, UnreadableFile
from aacp.graph.examples import with_batch
from aacp.latency.check import time_networks
from aacp.latency.deployment import Deployment
from aacp.latency.resources import measure_resources
from aacp.latency.runtimes.registry import find_runtime
from aacp.latency.runtimes.runtime import INT8, Runtime, RuntimeFile
from aacp.latency.runtimes.torch import timed_copy
from aacp.latency.timing import Timing, speedup
from aacp.pipeline.quantization import Quantization
from aacp.pipeline.reuse import usable
from aacp.pytorch.modules import named_tensors
from aacp.runs.chosen import ChosenStructure
from aacp.runs.exports import IN_INT8, BeforeAfter, ExportRecord, Latency, Resources, RuntimeFiles
from aacp.runs.files import ARTEFACT, EXPORT, EXPORTED, stage_of
from aacp.runs.folder import RunFolder
from aacp.runs.mending import set_aside
from aacp.user.values import counted

# Both networks are timed about this long at most in each runtime, until it is clear which is faster.
MAX_TIMING_SECONDS = 15.0


def is_complete(path: Path) -> bool:
    """Whether the file of a pruned network exists and was written to its end."""
    try:
        tensor_header(path)  # which compares the length of the file with its header
    except UnreadableFile:
        return False
    return True


def set_aside_other_network(folder: RunFolder, choice: ChosenStructure) -> None:
    """Set a file that is incomplete, or holds a network of another structure, aside, so that it is written again."""
    path = folder.path / ARTEFACT
    if not path.exists():
        return
    try:
        found = Artefact.read(path).structure
    except BrokenArtefact as error:
        set_aside(folder, ARTEFACT, f"is not the file of a pruned network ({str(error).rstrip('.')})")
        return
    if found != choice.structure:
        set_aside(folder, ARTEFACT, f"holds a network of another structure, {list(found)}")


def file_bytes(network: nn.Module, graph: ChannelGraph) -> int:
    """The size of a network's weights as safetensors."""
    known = {tensor.name for tensor in graph.tensors}  # not the attributes that hold a result of the last run
    own = {name: value for name, value in named_tensors(network) if name in known}
    tensors = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in own.items()}
    return len(tensor_bytes(tensors))


def export_both(
    folder: RunFolder,
    original: nn.Module,
    pruned: nn.Module,
    example: Any,
    where: Deployment,
    quantization: Quantization | None = None,
    is_timed: bool = True,
) -> ExportRecord | None:
    """Deliver both networks as files, compared with torch, and time them in alternation in every runtime.

    Returns None if the packages of ONNX Runtime are not installed.

    Args:
        folder: the folder of the training.
        original: the unpruned network.
        pruned: the pruned network.
        example: an input.
        where: the deployment.
        quantization: how networks are calibrated and scored, for a deployment in int8.
        is_timed: whether times on this machine say something; not if the networks will run on another device.
    """
    known = usable_export(folder)
    if known is not None:
        return known
    if not find_runtime("onnxruntime").is_installed:
        return None
    networks = {"original": original, "pruned": pruned}
    timings: list[BeforeAfter] = []
    files: list[RuntimeFiles] = []
    for place in _timed_deployments(where):
        runtime = place.runtime_calibrated_on(quantization.images if quantization else None)
        # A network that fixes its batch size is exported for that of the deployment.
        exported = _export(runtime, networks, folder.path, with_batch(example, place.batch))
        paths = {name: file.path for name, file in exported.items()}
        if is_timed:
            timings.append(_timed(paths or networks, example, place))
        if exported:
            made = _files_of(runtime, exported)
            if place.is_quantized and quantization is not None:
                scores = quantization.scores_of(networks, exported, runtime, example)
                made = replace(made, precision=INT8, quantized=scores)
            files.append(made)
    onnx, *others = files  # those of ONNX Runtime come first: torch has no files
    record = ExportRecord(
        OPSET, onnx.largest_difference, onnx.before_bytes, onnx.after_bytes, tuple(timings), tuple(others)
    )
    folder.listing.add(*(name for name in names_in(folder) if stage_of(name) == EXPORTED))
    folder.write_json(EXPORT, record.to_json())
    return record


def add_resources(folder: RunFolder, record: ExportRecord, example: Any, where: Deployment) -> ExportRecord:
    """Measure the memory and energy of both exported networks, unless the record of the export holds them already."""
    if record.resources is not None:
        return record
    runtime = where.resolved_runtime
    before, after = (
        measure_resources(folder.path / f"{name}{runtime.suffix}", example, where) for name in ("original", "pruned")
    )
    found = Resources(
        runtime=f"{runtime.name} {runtime.version}",
        before_bytes=before.memory_bytes,
        after_bytes=after.memory_bytes,
        before_joules=before.joules,
        after_joules=after.joules,
        energy_source=before.energy_source,
    )
    record = replace(record, resources=found)
    folder.write_json(EXPORT, record.to_json())
    return record


def usable_export(folder: RunFolder) -> ExportRecord | None:
    """The record of an export, or None if there is none, or one of its files is not there in its recorded size."""

    def read(known: Any) -> ExportRecord:
        record = ExportRecord.from_json(known)
        if missing := record.missing_in(folder.path):
            raise BrokenArtefact(f"{missing} is not there in the recorded size. Export again.")
        return record

    return usable(folder, EXPORT, read, "does not describe an export of this folder")


def _timed_deployments(where: Deployment) -> list[Deployment]:
    """torch, ONNX Runtime and the runtime of the deployment, and that runtime in int8 if networks are quantised.

    Each runs on the device of the deployment or, if it cannot, on the CPU.
    """
    found = []
    for runtime in dict.fromkeys([find_runtime("torch"), find_runtime("onnxruntime"), find_runtime(where.runtime)]):
        if runtime.is_installed:
            device = where.device if runtime.runs_on(where.device) else "cpu"
            found.append(replace(where, runtime=runtime, device=device, precision="float32"))
    return [*found, where] if where.is_quantized else found


def _export(runtime: Runtime, networks: Mapping[str, nn.Module], folder: Path, example: Any) -> dict[str, RuntimeFile]:
    """Write each network as a file of the runtime; nothing for a runtime that runs modules."""
    if runtime.suffix is None:
        return {}
    return {
        name: runtime.export(timed_copy(network), folder / f"{name}{runtime.suffix}", example)
        for name, network in networks.items()
    }


def _files_of(runtime: Runtime, exported: Mapping[str, RuntimeFile]) -> RuntimeFiles:
    before = exported["original"]
    after = exported["pruned"]
    difference = max(before.largest_difference or 0.0, after.largest_difference or 0.0)
    return RuntimeFiles(after.path.name, runtime.file_format, difference, before.file_bytes, after.file_bytes)


def _timed(networks: Mapping[str, nn.Module | Path], example: Any, place: Deployment) -> BeforeAfter:
    """Both networks timed in alternation, until it is decided which is faster, or the time is up."""
    timed = time_networks(
        networks,
        example,
        place,
        is_decided=lambda timings: _compared(timings, place).is_decided,
        max_seconds=MAX_TIMING_SECONDS,
    )
    return _compared(timed, place)


def _compared(timed: Mapping[str, Timing], place: Deployment) -> BeforeAfter:
    runtime = place.resolved_runtime
    words = f"{runtime.title or runtime.name} {runtime.version}{IN_INT8 if place.is_quantized else ''}"
    if place.device == "cpu":
        words += f", {counted(place.threads, 'thread')}"
    # Other work on the machine slows both networks of a turn down alike: ratios are steadier than times.
    ratio = speedup(timed["original"], timed["pruned"])
    return BeforeAfter(
        runtime=words,
        device="CPU" if place.device == "cpu" else runtime.device_name(place.device),
        batch_size=place.batch,
        repeats=len(timed["pruned"].seconds),
        before=_latency(timed["original"]),
        after=_latency(timed["pruned"]),
        low_speedup=ratio.lower,
        high_speedup=ratio.upper,
        median_speedup=ratio.median,
    )


def _latency(timed: Timing) -> Latency:
    spread = timed.spread
    return Latency(spread.median, spread.lower, spread.upper)
