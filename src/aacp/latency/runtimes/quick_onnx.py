"""export_quickly: a network as an ONNX file for timing only, ten times faster than an export that is delivered."""

from __future__ import annotations

import logging
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.artefact.onnx import OPSET, export_onnx
from aacp.artefact.onnx_session import INSTALL
from aacp.errors import AACPError, first_line
from aacp.graph.examples import FlatNetwork, tensors_in
from aacp.modules import copy_module, positional
from aacp.zoo.imports import require_package

_logger = logging.getLogger("aacp")


def export_quickly(network: nn.Module, path: Path, example: Any) -> None:
    """Write a network as ONNX for timing only: the operators are those of `export_onnx`, which takes ten times longer.

    It uses torch's older, deprecated exporter. If that fails or no longer exists, `export_onnx` is used.
    """
    require_package("onnx", INSTALL)
    arguments = positional(network, example)
    flat = FlatNetwork(copy_module(network).cpu().eval(), arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(flat, tensors_in(arguments), os.fspath(path), dynamo=False, opset_version=OPSET)
    except AACPError:
        raise
    except Exception as error:  # whatever the older exporter raises
        _log_slow_export(type(network).__name__, first_line(error))
        export_onnx(network, path, example, dynamic_batch=False, check=False)


@cache
def _log_slow_export(network: str, reason: str) -> None:
    """Log once for each network and reason that every structure takes longer to export."""
    _logger.warning(
        "torch's older ONNX exporter cannot export %s (%s). The newer one is used: measuring takes about ten seconds "
        "longer for each structure.",
        network,
        reason,
    )
