"""Profiling: a network in ONNX Runtime, with the time noted whenever a layer begins.

ONNX Runtime fuses and reorders what it runs, so that pieces are found in its own profile: a convolution or product
begins one, and whatever follows up to the next (reorders between memory layouts, too) belongs to it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.artefact.onnx import OPSET, export_onnx
from aacp.channels import Layer
from aacp.errors import AACPError, UntraceableModel
from aacp.graph.flat import FlatNetwork, tensors_in
from aacp.latency.runtimes import feeds, onnx_session, require_package
from aacp.modules import copy_module, positional

CONVOLUTIONS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose"}
PRODUCTS = {"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulScaleBias", "Einsum", "TransposeMatMul"}
BLOCK = 16  # ONNX Runtime pads channels to 8 or 16, and its profile shows the padded shapes


class OnnxPieces:
    """An ONNX file, as a call that notes the seconds of each of its pieces."""

    def __init__(
        self,
        path: Path,
        example: Any,
        layers: Sequence[Layer],
        widths: Sequence[int],
        threads: int = 1,
        session: Any = None,
    ) -> None:
        self._layers, self._widths = layers, widths
        self._session = session or onnx_session(path, threads)
        self._profiled = onnx_session(path, threads, profile=path.with_suffix(".profile"))
        self._inputs = feeds(self._session, example)

    def whole(self) -> None:
        """Run it as its user would."""
        self._session.run(None, self._inputs)

    def note(self) -> None:
        """Run it once with the time of each piece noted."""
        self._profiled.run(None, self._inputs)

    def notes(self) -> list[list[float]]:
        """The seconds of each piece, for each time it was noted; can be had once."""
        profile = Path(self._profiled.end_profiling())
        events = json.loads(profile.read_text())
        profile.unlink()
        begins = CONVOLUTIONS if all(layer.is_convolution for layer in self._layers) else CONVOLUTIONS | PRODUCTS
        return [pieces_of(run, self._layers, self._widths, begins) for run in runs_in(events)]


def draft_onnx(network: nn.Module, path: Path, example: Any) -> None:
    """The network as ONNX by the quickest way; the operators are those of `export_onnx`, which takes ten times longer.

    It is torch's older exporter; where that is gone or fails, the real one.
    """
    require_package("onnx")
    arguments = positional(network, example)
    flat = FlatNetwork(copy_module(network).cpu().eval(), arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(flat, tensors_in(arguments), os.fspath(path), dynamo=False, opset_version=OPSET)
    except AACPError:
        raise
    except Exception:  # whatever the older exporter raises
        export_onnx(network, path, example, dynamic_batch=False, check=False)


def runs_in(events: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The events of each run: its nodes in the order of their beginning, and last the run itself."""
    nodes: list[dict[str, Any]] = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes.append(event)
        elif event.get("name") == "model_run":
            yield [*sorted(nodes, key=lambda node: float(node["ts"])), event]
            nodes = []


def pieces_of(
    run: Sequence[dict[str, Any]], layers: Sequence[Layer], widths: Sequence[int], begins: set[str]
) -> list[float]:
    """The seconds of each piece of a run, in the order of the layers."""
    *nodes, _ = run
    firsts = [node for node in nodes if node["args"]["op_name"] in begins]
    if len(firsts) != len(layers):
        raise UntraceableModel(
            f"ONNX Runtime runs {len(firsts)} layers, but the graph has {len(layers)}: its pieces cannot be told "
            "apart. Use the runtime torch, or a limit on macs instead of latency."
        )
    # The time between kernels is the profile's own more than the runtime's: it is left to the calibration.
    seconds = [0.0] * len(firsts)
    place = -1
    for node in nodes:
        place += node["args"]["op_name"] in begins
        seconds[max(0, place)] += 1e-6 * float(node["dur"])
    return [seconds[place] for place in _matched(firsts, layers, widths)]


def _matched(nodes: Sequence[dict[str, Any]], layers: Sequence[Layer], widths: Sequence[int]) -> list[int]:
    """For each layer the first node with an output of its size that no earlier layer took; branches change places."""
    left = {place: _output_of(node) for place, node in enumerate(nodes)}
    found = []
    for layer, width in zip(layers, widths, strict=True):
        wanted = (tuple(layer.output_size), _blocks(width))
        place = next((place for place, output in left.items() if output == wanted), next(iter(left)))
        found.append(place)
        del left[place]
    return found


def _output_of(node: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    shape = next(iter(node["args"]["output_type_shape"][0].values()))
    return tuple(shape[2:]), _blocks(shape[1] if len(shape) > 1 else 0)


def _blocks(width: int) -> int:
    return -(-width // BLOCK)
