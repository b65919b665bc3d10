"""export_quickly: a network as an ONNX file for timing only, which is not compared with torch."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from aacp.artefact.onnx import OPSET, export_onnx
from aacp.artefact.onnx_session import INSTALL
from aacp.artefact.onnx_traced import write_traced
from aacp.errors import ExportFailed
from aacp.graph.examples import FlatNetwork
from aacp.pytorch.modules import copy_module, positional
from aacp.zoo.imports import require_package

_logger = logging.getLogger("aacp")


def export_quickly(network: nn.Module, path: Path, example: Any) -> None:
    """Write a network as ONNX for timing only: by torch's older exporter or, if that fails, by the newer one."""
    require_package("onnx", INSTALL)
    arguments = positional(network, example)
    flat = FlatNetwork(copy_module(network).cpu().eval(), arguments)
    try:
        write_traced(flat, arguments, path, OPSET, dynamic_batch=False, strict=False)
    except ExportFailed as error:
        _log_slow_export(str(error))
        export_onnx(network, path, example, dynamic_batch=False, check=False)


@cache
def _log_slow_export(reason: str) -> None:
    """Log once for each reason that every structure takes longer to export."""
    _logger.warning("%s Measuring takes about ten seconds longer for each structure.", reason)
